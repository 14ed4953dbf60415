"""The store as a whole: local or pulled, listings, reads, surveys, release, and preparing clients."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidModel, InvalidRequest, SourceNotFound
from adapter.storage.search import READ_LIMIT_BYTES
from tests.builders import a_spec
from tests.unit.storage.rigs import make_rig, opened, write_tree


def local_spec(rig, path="helped/m", **fields):
    return a_spec(str(rig.root / path), **{"disk_size_bytes": 3} | fields)


async def test_empty_and_large_files_are_read_with_care(rig):
    """Nothing is asked for an empty one; a config of megabytes is refused unread."""
    rig.bucket.put("m/config.pbtxt", b"")
    rig.bucket.put("m/large", bytes(READ_LIMIT_BYTES + 1))
    model = await opened(rig.store, a_spec())
    assert await model.read(model.listing.find("config.pbtxt")) == b""
    with pytest.raises(InvalidModel, match=f"'large' of memory://b/m has {READ_LIMIT_BYTES + 1} bytes"):
        await model.read(model.listing.find("large"))
    assert rig.bucket.calls == ["list m"]


# embedded setting, spec fields, is local
CHOICES = [
    (None, {}, True),
    (None, {"disk_size_bytes": None}, False),
    (None, {"storage_params": {"bucket": "b"}}, False),
    (None, {"path": "/helped/m"}, False),
    (None, {"path": "helped/m"}, False),
    (None, {"path": "{root}/absent"}, False),
    (None, {"storage_key": "default"}, True),
    (True, {}, False),
    (False, {}, True),
    (False, {"disk_size_bytes": None, "storage_params": {"bucket": "b"}}, True),
]


@pytest.mark.parametrize(("embedded", "fields", "is_local"), CHOICES)
@pytest.mark.parametrize("call", ["open", "survey"])
async def test_local_or_pulled(tmp_path, volume, embedded, fields, is_local, call):
    """Auto looks at the request and the volume; true and false force one."""
    rig = make_rig(tmp_path, volume, embedded=embedded)
    write_tree(rig.root, {"helped/m/file": b"abc"})
    fields = dict(fields)
    path = fields.pop("path", "{root}/helped/m").format(root=rig.root)
    rig.bucket.put(f"{path.strip('/')}/other", b"12345")
    spec = a_spec(path, **{"disk_size_bytes": 3} | fields)
    listing = (await opened(rig.store, spec)).listing if call == "open" else (await rig.store.survey(spec, 20)).listing
    assert [file.path for file in listing.files] == (["file"] if is_local else ["other"])
    assert bool(rig.bucket.calls) is not is_local
    rig.store.close()


async def test_forced_local_refuses_what_is_not_on_the_volume(tmp_path, volume):
    """With the storage helper, no path leads elsewhere."""
    rig = make_rig(tmp_path, volume, embedded=False)
    with pytest.raises(InvalidRequest, match="is not an absolute path below"):
        await opened(rig.store, a_spec("m"))
    with pytest.raises(SourceNotFound, match="does not exist"):
        await opened(rig.store, local_spec(rig))
    rig.store.close()


@pytest.mark.parametrize("problem", ["path", "absent", "config"])
async def test_a_survey_tells_errors_as_open_does(rig, problem):
    """When the store answered in time."""
    if problem == "config":
        rig.configure("default", {"bucket": "b"})
    spec = a_spec(".." if problem == "path" else "m")
    with pytest.raises(SourceNotFound if problem == "absent" else InvalidRequest) as told:
        await opened(rig.store, spec)
    with pytest.raises(type(told.value)) as surveyed:
        await rig.store.survey(spec, 20)
    assert surveyed.value.text == told.value.text


async def test_prepare_only_warns(rig, capsys):
    """A broken entry is some user's trouble, not the start's."""
    rig.configure("broken", "the-secret{")
    await rig.store.prepare()
    rig.clients.error = InvalidRequest("cannot work")
    await rig.store.prepare()
    printed = capsys.readouterr().out
    assert "storage.config_unusable" in printed and "is not JSON" in printed and "cannot work" in printed
    assert "the-secret" not in printed


@pytest.mark.parametrize("kind", ["ftp", "hf", "S3"])
@pytest.mark.parametrize("call", ["open", "survey"])
async def test_other_types_are_not_supported(rig, kind, call):
    """The sentence says which are."""
    rig.configure("default", {"type": kind})
    with pytest.raises(InvalidRequest, match=f"^storage type '{kind}' is not supported; supported: s3, http, gcs, azure, pvc$"):
        await (opened(rig.store, a_spec()) if call == "open" else rig.store.survey(a_spec(), 20))
