"""The store as a whole: local or pulled, listings, reads, surveys, release, and preparing clients."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest, SourceNotFound
from tests.builders import a_spec
from tests.unit.storage.rigs import make_rig, opened, write_tree


def local_spec(rig, path="helped/m", **fields):
    return a_spec(str(rig.root / path), **{"disk_size_bytes": 3} | fields)


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
    listing = (await opened(rig.store, spec)).listing if call == "open" else (await rig.store.survey(spec, 20, lambda _: ())).listing
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
