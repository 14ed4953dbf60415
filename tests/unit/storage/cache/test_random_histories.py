"""Loads, cancels, changes, damage, outages and evictions in any order: in the end nobody is counted as a user, and every byte is."""

from __future__ import annotations

import asyncio
import gc
import random

import pytest

from adapter.errors import AdapterError, SourceDenied, SourceUnavailable
from adapter.model import Artifact
from tests.builders import a_spec
from tests.unit.storage.beds import folder_content, opened
from tests.unit.storage.cache.conftest import CacheBed
from tests.unit.storage.cache.test_idle_artifacts_give_way import disk_bytes
from tests.unit.storage.pull.test_archives_are_unpacked_safely import zip_of

KEYS = ("default", "other")


class History:
    """What happens to one cache, from one seed."""

    def __init__(self, cache: CacheBed, seed: int) -> None:
        self.cache = cache
        self.dice = random.Random(seed)
        self.held: list[Artifact] = []
        self.loads: list[asyncio.Task[Artifact]] = []
        self.faults = cache.bucket._faults
        cache.identity("other")
        self.change()
        self.change_archive()

    def change(self) -> None:
        """One object of the model is another one."""
        for path in self.dice.sample(["1/a", "1/b", "1/c", "config.pbtxt"], self.dice.randint(1, 4)):
            self.cache.bucket.put(f"m/{path}", b"# %d\n" % self.dice.randrange(3) * self.dice.randrange(1, 50))
        for path in ("1/a", "1/b", "1/c", "config.pbtxt"):
            if f"m/{path}" not in self.cache.bucket._objects:
                self.cache.bucket.put(f"m/{path}", b"# first\n")

    def change_archive(self) -> None:
        """The archive is another one, or one of before."""
        self.cache.bucket.put("n.zip", zip_of([("1/a", b"%d" % self.dice.randrange(2) * 100), ("1/b", b"b")]))

    def begin(self) -> None:
        """A load of one of the two, by one of the two."""
        key = self.dice.choice(KEYS)
        if self.dice.random() < 0.6:
            load = self._load(a_spec("m", storage_key=key))
        else:
            load = self._load(a_spec("n.zip", storage_key=key, storage_params={"unpack": "true"}))
        self.loads.append(asyncio.create_task(load))

    async def _load(self, spec) -> Artifact:
        model = await opened(self.cache.bed.store, spec, 2.0)
        if config := model.listing.find("config.pbtxt"):
            await model.read(config)
        if self.dice.random() < 0.1:
            raise AdapterError("not wanted any more")
        return await model.fetch(model.listing.files)

    def cancel(self) -> None:
        """One load, at whichever await it is."""
        if self.loads:
            self.dice.choice(self.loads).cancel()

    def damage(self) -> None:
        """A file of an artifact is another one."""
        files = list(self.cache.volume.artifacts_dir.glob("*/files/1/*"))
        if files:
            self.dice.choice(sorted(files)).write_bytes(b"damaged %d" % self.dice.randrange(1000))

    def trouble(self) -> None:
        """The next calls fail."""
        error = self.dice.choice([SourceUnavailable("away", can_pass=False), SourceUnavailable("away"), SourceDenied("no")])
        self.cache.bucket.fail(self.dice.choice(["list", "read"]), error, times=self.dice.randint(1, 3))

    async def release(self) -> None:
        """Somebody needs his artifact no longer."""
        if self.held:
            await self.cache.bed.store.release(self.held.pop(self.dice.randrange(len(self.held))))

    async def give_way(self) -> None:
        """Somebody needs room."""
        await asyncio.to_thread(self.cache.bed.space.give_way, self.dice.choice([1, 200, 1 << 20]))

    async def collect(self) -> None:
        """What the loads gave that have ended."""
        for task in [task for task in self.loads if task.done()]:
            self.loads.remove(task)
            if not task.cancelled() and task.exception() is None:
                self.held.append(task.result())
            elif not task.cancelled():
                assert isinstance(task.exception(), AdapterError), repr(task.exception())

    async def run(self, steps: int) -> None:
        """So many steps, and the end of all loads."""
        acts = [self.begin] * 6 + [self.cancel] * 2 + [self.change, self.change_archive, self.damage, self.trouble]
        waits = [self.release] * 3 + [self.give_way, self.collect]
        for _ in range(steps):
            if self.dice.random() < 0.6:
                self.dice.choice(acts)()
            else:
                await self.dice.choice(waits)()
            for _ in range(self.dice.choice([0, 1, 3, 10])):
                await asyncio.sleep(0.0005)
        for calls in self.faults.values():
            calls.clear()
        await asyncio.gather(*self.loads, return_exceptions=True)
        await self.collect()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cache_bytes", [0, 1 << 30])
async def test_whatever_happens_users_and_bytes_are_right_in_the_end(make_cache, seed: int, cache_bytes: int) -> None:
    """And what is kept is found and right."""
    cache = make_cache(cache_bytes=cache_bytes)
    history = History(cache, seed)
    await history.run(120)
    shelf = cache.bed.store._cache._shelf
    while history.held:
        await history.release()
    gc.collect()
    for _ in range(2000):
        if not shelf.placed_bytes() and not folder_content(cache.volume.staging_dir):
            break
        await asyncio.sleep(0.005)
    assert shelf.placed_bytes() == 0 and not shelf._dropped, "somebody is counted for ever"
    assert folder_content(cache.volume.staging_dir) == [] and cache.bed.space.staging_bytes() == 0
    assert sorted(path.name for path in cache.artifacts) == sorted(shelf._entries)
    if not cache_bytes:
        assert cache.artifacts == []
    for spec in (a_spec("m"), a_spec("n.zip", storage_params={"unpack": "true"})):
        model = await opened(cache.bed.store, spec, 20.0)
        artifact = await model.fetch(model.listing.files)
        assert {file.path: (artifact.root / file.path).stat().st_size for file in model.listing.files} == {
            file.path: file.size_bytes for file in model.listing.files
        }
        await cache.bed.store.release(artifact)
    await asyncio.to_thread(cache.bed.space.give_way, 1 << 40)
    assert cache.bed.space.held_bytes() == disk_bytes(cache.volume) == 0 and cache.artifacts == []
