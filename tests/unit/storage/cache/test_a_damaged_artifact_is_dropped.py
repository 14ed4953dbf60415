"""What is not as it was written is not served: pulled again, and the rest of the volume is left as it is."""

from __future__ import annotations

import json
import os
import stat

import pytest
from structlog.testing import capture_logs

from adapter.storage.cache import meta as records
from adapter.storage.cache.meta import Unusable
from tests.builders import a_spec
from tests.unit.storage.beds import folder_content
from tests.unit.storage.cache.conftest import MODEL, content_of

FILE = "files/1/weights.bin"


def same_times(path, before):
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def shorter(entry):
    before = (entry / FILE).stat()
    (entry / FILE).write_bytes(b"x")
    same_times(entry / FILE, before)


def later(entry):
    before = (entry / FILE).stat()
    os.utime(entry / FILE, ns=(before.st_atime_ns, before.st_mtime_ns + 1))


def absent(entry):
    (entry / FILE).unlink()


def a_link(entry):
    before = (entry / FILE).stat()
    target = entry.parent.parent / "elsewhere"
    target.write_bytes((entry / FILE).read_bytes())
    same_times(target, before)
    (entry / FILE).unlink()
    (entry / FILE).symlink_to(target)


def a_linked_folder(entry):
    moved = entry.parent.parent / "moved"
    (entry / "files/1").rename(moved)
    (entry / "files/1").symlink_to(moved)


def a_pipe(entry):
    (entry / FILE).unlink()
    os.mkfifo(entry / FILE)


def a_folder(entry):
    (entry / FILE).unlink()
    (entry / FILE).mkdir()


def no_record(entry):
    (entry / "meta.json").unlink()


def a_record_that_is_a_pipe(entry):
    (entry / "meta.json").unlink()
    os.mkfifo(entry / "meta.json")


def a_record_that_is_a_link(entry):
    (entry / "meta.json").rename(entry.parent.parent / "record")
    (entry / "meta.json").symlink_to(entry.parent.parent / "record")


def a_huge_record(entry):
    os.truncate(entry / "meta.json", 1 << 40)


def edited(**changes):
    def damage(entry):
        document = json.loads((entry / "meta.json").read_text())
        document.update({name: change(document) if callable(change) else change for name, change in changes.items()})
        (entry / "meta.json").write_text(json.dumps(document))

    damage.__name__ = "+".join(changes)
    return damage


def leading(path):
    return lambda document: [{**row, "path": path} if row["path"] == FILE else row for row in document["files"]]


DAMAGE = [
    shorter, later, absent, a_link, a_linked_folder, a_pipe, a_folder,
    no_record, a_record_that_is_a_pipe, a_record_that_is_a_link, a_huge_record,
    edited(format=2), edited(format="1"), edited(boot_id="another"), edited(origin="0" * 64), edited(key="0" * 64),
    edited(files=[]), edited(files={}), edited(files=leading("files/../../../../etc/passwd")), edited(files=leading("/etc/passwd")),
    edited(files=leading("meta.json")), edited(listing=None),
    edited(readers={"x": "y"}), edited(readers=[1]), edited(archive=["k", "v", 1]),
]  # fmt: skip


@pytest.mark.parametrize("is_new_process", [False, True])
@pytest.mark.parametrize("damage", DAMAGE, ids=lambda damage: damage.__name__)
async def test_a_damaged_artifact_is_pulled_again(cache, damage, is_new_process):
    """Whatever it is; and a model that was placed from it may still be released."""
    cache.put()
    held = await cache.load()
    (entry,) = cache.artifacts
    damage(entry)
    after = cache.again() if is_new_process else cache
    assert len(await after.asked()) == 4
    artifact = await after.load()
    assert content_of(artifact) == {key.removeprefix("m/"): content for key, content in MODEL.items()}
    assert len(cache.artifacts) == 1 and folder_content(cache.volume.trash_dir) == []
    await after.bed.store.release(artifact)
    if not is_new_process:
        await after.bed.store.release(held)
    assert after.bed.space.give_way(1 << 40) > 0 and cache.artifacts == []
    assert after.bed.space.held_bytes() == 0


@pytest.mark.parametrize("damage", [shorter, a_link, edited(format=2)], ids=lambda damage: damage.__name__)
async def test_a_damaged_artifact_is_no_source_of_a_changed_model(cache, damage):
    """Nor is its config read."""
    cache.put()
    await cache.asked()
    damage(cache.artifacts[0])
    cache.bucket.put("m/1/model.onnx", b"new")
    assert len(await cache.asked()) == 4


async def test_a_damaged_artifact_is_not_reclaimed(cache):
    """The model that is placed has its own names of the files."""
    cache.put()
    key = (await cache.load()).key
    again = cache.again()
    await again.bed.store.prepare()
    later(cache.artifacts[0])
    assert await again.bed.store.reclaim(key) is None
    assert cache.artifacts == []


async def test_what_is_not_of_the_cache_goes_at_the_start(cache):
    """With one line for all of a kind, and the usable ones stay."""
    cache.put()
    await cache.asked()
    folder = cache.volume.artifacts_dir
    for name in ("0123456789abcdef", "x" * 64, "a file"):
        (folder / name).mkdir()
    (folder / ("0" * 64)).write_text("a file")
    (folder / ("1" * 64)).symlink_to(cache.artifacts[-1])
    kept = next(path for path in cache.artifacts if (path / "meta.json").exists() and not path.is_symlink())
    (kept / "meta.json.0123").write_text("of a process that was killed")
    again = cache.again()
    with capture_logs() as lines:
        await again.bed.store.prepare()
    assert os.listdir(kept).count("meta.json.0123") == 0
    assert len(cache.artifacts) == 1 and await again.asked() == ["list m"]
    dropped = {event["reason"]: event["artifacts"] for event in lines if event["event"] == "cache.dropped"}
    assert dropped == {"not of the cache": 3, "no folder": 2}


@pytest.mark.parametrize("content", [
    b"", b"{", b"null", b"[]", b"[" * 100_000, b'{"format":' * 5000, b"\xff\xfe", b'{"format": NaN}', b'{"format": 1e999}',
    b'{"format": ' + b"9" * 10_000 + b"}", b"[" + b"[]," * 300_000 + b"[]]", b"[" + b"1," * 2_000_000 + b"1]",
])  # fmt: skip
def test_a_record_may_be_anything(content):
    """It is unusable, and nothing else happens."""
    with pytest.raises(Unusable):
        records.parse(content, "0" * 64)


async def test_a_record_that_is_too_long_is_none(cache, monkeypatch):
    """The model is served all the same, and not kept; the log says what that costs."""
    monkeypatch.setattr(records, "MAX_BYTES", 500)
    cache.put()
    with capture_logs() as lines:
        artifacts = [await cache.load(a_spec("m", model_id=name)) for name in ("a", "b")]
    told = {"event": "cache.not_kept", "cause": "it has too many files: each load after an unload pulls all of it again"}
    assert [line for line in lines if told.items() <= line.items() and line["log_level"] == "warning"] == lines
    assert [artifact.key for artifact in artifacts] == [None, None]
    for artifact in artifacts:
        await cache.bed.store.release(artifact)
    assert cache.artifacts == []


async def test_modes_let_triton_read_the_files(cache):
    """Not the record."""
    before = os.umask(0o077)
    try:
        cache.put()
        artifact = await cache.load()
        cache.bucket.put("m/1/model.onnx", b"new")
        changed = await cache.load()
    finally:
        os.umask(before)
    for root in (artifact.root, changed.root):
        for path in (root.parent, root, *root.rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path
