"""Bytes and requests of each load, counted at the bucket: cold, second id, reload, changed object, next process."""

from __future__ import annotations

import os

from tests.builders import a_spec
from tests.unit.storage.cache.conftest import MODEL, content_of, pages
from tests.unit.storage.rigs import folder_content

LISTING = ["list m"]


async def test_a_schema_is_not_read_again(cache):
    """It lies beside the model's files, and is none of them."""
    cache.put({"s/schema.json": b'{"inputs": []}', "m/1/model.onnx": b"abc"})
    spec = a_spec("m", model_type="onnx", schema_path="s/schema.json")
    before = await cache.asked(spec)
    assert len(before) == len(pages(before)) + 2
    assert await cache.asked(spec) == pages(before)
    model = await cache.load(spec)
    assert sorted(content_of(model)) == ["1/model.onnx"]


async def test_what_was_there_before_a_change_is_found_again(cache):
    """A roll-back: the older artifact is still there."""
    cache.put()
    await cache.asked()
    cache.bucket.put("m/1/weights.bin", b"new" * 1000)
    await cache.asked()
    cache.put()
    assert await cache.asked() == LISTING


async def test_a_file_that_is_not_served_changes_nothing(cache):
    """An older version is in the listing alone."""
    cache.put({"m/1/model.onnx": b"old", "m/2/model.onnx": b"new"})
    spec = a_spec("m", model_type="onnx")
    assert len(await cache.asked(spec)) == 2
    cache.bucket.put("m/1/model.onnx", b"something else")
    assert await cache.asked(spec) == LISTING


async def test_what_has_no_version_is_not_kept(cache):
    """Two answers cannot be told apart: pulled each time, gone with the model, never found."""
    cache.bucket.etag = lambda key: ""
    cache.put()
    first = await cache.load()
    second = await cache.load()
    assert first.key is None and first.root != second.root
    for artifact in (first, second):
        await cache.store.release(artifact)
    assert cache.artifacts == [] and folder_content(cache.volume.staging_dir) == []


async def test_the_last_use_outlives_the_process(cache):
    """So that the next one gives up the right one."""
    for name in ("a", "b", "c"):
        cache.bucket.put(f"{name}/model.onnx", name.encode() * 1000)
        await cache.asked(a_spec(name))
    first, *others = sorted(cache.artifacts, key=lambda path: path.stat().st_mtime_ns)
    os.utime(first)
    again = cache.again()
    await again.store.prepare()
    again.space.give_way(1)
    assert first.exists() and sum(path.exists() for path in others) == 1


async def test_a_damaged_artifact_in_use_does_not_stand_for_its_successor(cache):
    """Both have one key. The successor can be evicted, and the damaged one counts until its own model goes."""
    cache.put()
    space, size_bytes = cache.space, sum(map(len, MODEL.values()))
    damaged = await cache.load()
    (damaged.root / "1/weights.bin").write_bytes(b"x")
    successor = await cache.load()
    assert damaged.key == successor.key and damaged.root != successor.root

    await cache.store.release(successor)
    assert space.counted_bytes("placed") >= size_bytes
    assert space.give_way(1) > 0 and not successor.root.exists()
    await cache.store.release(damaged)
    assert (space.held_bytes(), cache.artifacts) == (0, [])
