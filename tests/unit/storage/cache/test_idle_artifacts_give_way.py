"""What nobody uses goes when room is needed, the least recently used first; what is placed never does. Every inode counts once."""

from __future__ import annotations

import os
import random

import pytest

from adapter.storage.cache.shelf import Entry, Shelf
from tests.builders import a_spec
from tests.unit.storage.cache.conftest import counted

KIB = 1024


def disk_bytes(volume):
    """Of all files below the folder of artifacts, each inode once."""
    found = {}
    for path in volume.artifacts_dir.rglob("*"):
        state = path.lstat()
        if not path.is_dir():
            found[state.st_ino] = state.st_size
    return sum(found.values())


async def filled(cache, *names):
    """One idle artifact for each name, in this order."""
    for name in names:
        cache.bucket.put(f"{name}/model.onnx", name.encode() * 10 * KIB)
        await cache.asked(a_spec(name))


async def names(cache):
    """Of the models that are kept."""
    kept = set()
    for name in "abcdef":
        if f"{name}/model.onnx" in cache.bucket._objects:
            calls = len(cache.bucket.calls)
            artifact = await cache.load(a_spec(name))
            if len(cache.bucket.calls) == calls + 1:
                kept.add(name)
            await cache.bed.store.release(artifact)
    return kept


async def test_the_least_recently_used_one_goes_first(cache):
    """A use is a fetch, or the end of one."""
    await filled(cache, "a", "b", "c")
    await cache.asked(a_spec("a"))
    evictions = counted("cache_evictions_total")
    assert cache.bed.space.give_way(15 * KIB) >= 15 * KIB
    assert counted("cache_evictions_total") == evictions + 2
    assert len(cache.artifacts) == 1
    assert await names(cache) == {"a"}


async def test_what_is_placed_never_goes(cache):
    """However old it is."""
    cache.bucket.put("p/model.onnx", b"p" * 10 * KIB)
    placed = await cache.load(a_spec("p"))
    await filled(cache, "a", "b")
    assert cache.bed.space.give_way(1 << 40) < 30 * KIB
    assert [path.name for path in cache.artifacts] == [placed.key]
    assert cache.bed.space.give_way(1) == 0


async def test_a_pull_that_needs_room_gets_it(make_cache):
    """A budget of 40 KiB: the oldest idle artifacts make room for a new one of 15 KiB."""
    cache = make_cache(cache_bytes=40 * KIB)
    await filled(cache, "a", "b", "c")
    cache.bucket.put("d/model.onnx", b"d" * 15 * KIB)
    await cache.load(a_spec("d"))
    assert cache.bed.space.held_bytes() <= 40 * KIB
    assert len(cache.artifacts) == 3, "one of 10 KiB had to go"


async def test_files_that_a_placed_model_has_too_free_nothing(cache):
    """A version that shares all but one file with what is placed: its own file counts, and goes."""
    cache.put({"m/1/model.onnx": b"x" * 10 * KIB, "m/1/more": b"y" * 20 * KIB})
    spec = a_spec("m", model_type="onnx")
    await cache.asked(spec)
    cache.bucket.put("m/1/more", b"z" * 5 * KIB)
    await cache.load(spec)
    space = cache.bed.space
    assert space.held_bytes() == disk_bytes(cache.volume)
    assert 35 * KIB <= space.held_bytes() < 37 * KIB
    assert 20 * KIB <= space.give_way(1) < 22 * KIB
    assert 15 * KIB <= space.held_bytes() == disk_bytes(cache.volume) < 16 * KIB


async def test_bytes_are_counted_while_they_are_pulled_changed_and_left(cache):
    """At every point between two loads, what is counted is what is on the disk."""
    cache.put({"m/1/model.onnx": b"x" * KIB, "m/1/more": b"y" * KIB})
    spec = a_spec("m", model_type="onnx")
    held = [await cache.load(spec)]
    for turn in range(5):
        cache.bucket.put(f"m/1/{'model.onnx' if turn % 2 else 'more'}", os.urandom(KIB + turn))
        held.append(await cache.load(spec))
        assert cache.bed.space.held_bytes() == disk_bytes(cache.volume)
    for artifact in held:
        await cache.bed.store.release(artifact)
        assert cache.bed.space.held_bytes() == disk_bytes(cache.volume)
    again = cache.again()
    await again.bed.store.prepare()
    assert again.bed.space.held_bytes() == disk_bytes(cache.volume)
    again.bed.space.give_way(1 << 40)
    assert again.bed.space.held_bytes() == disk_bytes(cache.volume) == 0


def artifact(name, inodes):
    return Entry(name=name, key=name, origin="o", inodes=inodes, record_bytes=1)


def test_random_histories_of_the_shelf():
    """A model of it, counted from the start after each step: bytes by inode, users, and nothing with users goes."""
    for seed in range(200):
        dice = random.Random(seed)
        shelf, there, users = Shelf(keeps_idle=bool(seed % 5)), {}, {}
        for step in range(60):
            roll = dice.random()
            if roll < 0.3:
                name = f"n{step}"
                there[name] = artifact(name, {inode: inode * 10 for inode in dice.sample(range(1, 9), dice.randint(0, 4))})
                users[name] = 1
                shelf.add(there[name], 1)
            elif roll < 0.55 and there:
                name = dice.choice(sorted(there))
                assert shelf.hold(name) is there[name]
                users[name] += 1
            elif roll < 0.85 and any(users.values()):
                name = dice.choice(sorted(name for name, count in users.items() if count))
                users[name] -= 1
                gone = shelf.let_go(name)
                assert (gone is not None) == (not users[name] and not shelf.keeps_idle)
                if gone:
                    del there[name], users[name]
            elif roll < 0.95:
                wanted = dice.randint(1, 100)
                before = shelf.placed_bytes() + shelf.idle_bytes()
                given, freed = shelf.give_up(wanted)
                assert all(not users[entry.name] for entry in given)
                assert before - freed == shelf.placed_bytes() + shelf.idle_bytes()
                for entry in given:
                    del there[entry.name], users[entry.name]
                left = [entry for name, entry in there.items() if not users[name]]
                held = {inode for name, entry in there.items() if users[name] for inode in entry.inodes}
                assert freed >= wanted or all(entry.inodes and entry.inodes.keys() <= held for entry in left)
            placed = {inode for name, entry in there.items() if users[name] for inode in entry.inodes}
            idle = {inode for name, entry in there.items() if not users[name] for inode in entry.inodes} - placed
            in_use = sum(1 for name in there if users[name])
            assert shelf.placed_bytes() == sum(placed) * 10 + in_use
            assert shelf.idle_bytes() == sum(idle) * 10 + len(there) - in_use


@pytest.mark.parametrize("cache_bytes", [0, 1 << 30])
async def test_a_damaged_artifact_counts_as_long_as_it_is_placed(make_cache, cache_bytes):
    """Its folder has gone, but the model has names of its own for the files."""
    cache = make_cache(cache_bytes=cache_bytes)
    cache.put({"m/model.onnx": b"x" * KIB})
    first = await cache.load()
    (first.root / "model.onnx").write_bytes(b"damaged")
    second = await cache.load()
    assert cache.bed.space.held_bytes() > 2 * KIB
    await cache.bed.store.release(first)
    assert KIB < cache.bed.space.held_bytes() < 2 * KIB
    await cache.bed.store.release(second)
    cache.bed.space.give_way(1 << 40)
    assert cache.bed.space.held_bytes() == 0 and cache.artifacts == []
