"""What must not be found again: content without a version, and what was damaged while it was in use."""

from __future__ import annotations

from tests.unit.storage.cache.conftest import MODEL
from tests.unit.storage.rigs import folder_content


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
