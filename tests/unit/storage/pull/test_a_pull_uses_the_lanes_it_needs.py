"""A pull over real threads: more lanes where each waits, its part where others pull too, and its space on any file system."""

from __future__ import annotations

import asyncio
import errno
import os
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from adapter.errors import AdapterError
from adapter.space import Space
from adapter.storage.bucket import Sink, StoredObject
from adapter.storage.lanes import EndpointThreads
from adapter.storage.pull import growth, preallocation
from adapter.storage.pull.puller import Puller
from adapter.storage.pull.spans import SPAN_SIZES, SpanSizes
from adapter.volume import Volume
from adapter.waits import Waits
from adapter.workers import Stop, Workers
from tests.fakes.memory_bucket import MemoryBucket
from tests.unit.storage.beds import folder_content

PART = 1000


class FarBucket(MemoryBucket):
    """Each read takes its time, during which nobody works."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.most_active = self._inside = 0
        self._counting = threading.Lock()
        self._seconds = seconds

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        with self._counting:
            self._inside += 1
            self.most_active = max(self.most_active, self._inside)
        try:
            stop.pause(self._seconds)
        finally:
            with self._counting:
                self._inside -= 1
        super().read(wanted, start, length, sink, stop)


class CrowdedBucket(MemoryBucket):
    """Gives nothing before the gate is open; then writes down whose turn it was."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.order: list[str] = []

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        while not self.gate.wait(0.01):
            stop.check()
        self.order.append(wanted.key)
        super().read(wanted, start, length, sink, stop)


class Bed:
    """Pulls of one puller."""

    def __init__(self, volume: Volume, *, threads: int, lanes: int, sizes: SpanSizes = SPAN_SIZES) -> None:
        self.volume = volume
        self.threads = EndpointThreads("pull", threads, "to pull with")
        self.files = Workers("files", 2)
        self.puller = Puller(volume=volume, pulls=self.threads, files=self.files, lanes=lanes, sizes=sizes)

    async def pull(self, bucket: MemoryBucket, *keys: str) -> dict[str, bytes]:
        with Space(self.volume.cache_dir, 0, refuses=False).reservation() as room:
            objects = {key: bucket.stored(key) for key in keys}
            root = await self.puller.pull(bucket, objects, Waits(time.monotonic), room=room)
            assert room.size_bytes == room.written_bytes == sum(stored.size_bytes for stored in objects.values())
        found = {key: (root / key).read_bytes() for key in keys}
        self.volume.discard(root)
        return found

    @property
    def is_clean(self) -> bool:
        return not any(folder_content(folder) for folder in (self.volume.staging_dir, self.volume.artifacts_dir, self.volume.trash_dir))


@pytest.fixture
def make(volume: Volume) -> Iterator[Callable[..., Bed]]:
    """Beds whose threads end with the test."""
    beds: list[Bed] = []

    def made(**options: object) -> Bed:
        beds.append(Bed(volume, **options))  # type: ignore[arg-type]
        return beds[-1]

    yield made
    for bed in beds:
        bed.threads.close()
        bed.files.close()


@pytest.mark.parametrize("lanes", [2, 32])
async def test_where_each_file_waits_for_the_store_more_lanes_are_added(make: Callable[..., Bed], lanes: int) -> None:
    """As many as one pull may have, and never more."""
    bed, bucket = make(threads=64, lanes=lanes), FarBucket(0.02)
    contents = {f"m/{number}": str(number).encode() for number in range(400 if lanes > 4 else 60)}
    for key, content in contents.items():
        bucket.put(key, content)
    assert await bed.pull(bucket, *contents) == contents
    assert bucket.most_active == 2 if lanes == 2 else growth.FIRST_LANES < bucket.most_active <= lanes


async def test_a_cancel_while_lanes_are_added_leaves_nothing(make: Callable[..., Bed], monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever the pull stands; the loop has nothing to complain of."""
    looks: list[int] = []

    def look(self: growth.Growth, *_: object, **__: object) -> None:
        looks.append(self.lanes)
        self.lanes = 1 + len(looks) % 5

    monkeypatch.setattr(growth.Growth, "look", look)
    monkeypatch.setattr(growth.Growth, "look_seconds", 0.0)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    bed, bucket = make(threads=8, lanes=5), MemoryBucket()
    for number in range(30):
        bucket.put(f"m/{number}", bytes(10))
    for ticks in range(60):
        before = len(looks)
        task = asyncio.create_task(bed.pull(bucket, *bucket._objects))
        while ticks % 2 and len(looks) == before and not task.done():  # every other time from the first look on
            await asyncio.sleep(0)
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert bed.is_clean and bucket.active == 0
    assert complaints == [] and len(set(looks)) > 1


async def test_no_lane_is_begun_while_a_cancelled_pull_waits_for_its_threads(
    make: Callable[..., Bed], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They end when they can; meanwhile more lanes would be of use."""
    lanes, looks = 2, list[int]()

    def look(self: growth.Growth, *_: object, **__: object) -> None:
        self.lanes = lanes
        looks.append(lanes)

    monkeypatch.setattr(growth.Growth, "look", look)
    monkeypatch.setattr(growth.Growth, "look_seconds", 0.0)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    bed, bucket, release, reading = make(threads=8, lanes=5), MemoryBucket(), threading.Event(), list[int]()

    def read(*_: object) -> None:
        reading.append(1)
        release.wait(20)

    bucket.read = read  # type: ignore[method-assign, assignment]
    for number in range(30):
        bucket.put(f"m/{number}", bytes(10))
    task = asyncio.create_task(bed.pull(bucket, *bucket._objects))
    async with asyncio.timeout(20):
        while len(reading) < 2:
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        lanes = 5
        while lanes not in looks:
            await asyncio.sleep(0)
        release.set()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert bed.is_clean and len(reading) == 2 and complaints == []


async def test_a_failure_of_one_lane_ends_a_pull_that_is_adding_lanes(make: Callable[..., Bed], monkeypatch: pytest.MonkeyPatch) -> None:
    """The first error is told, and no lane is begun after it."""
    monkeypatch.setattr(growth.Growth, "look_seconds", 0.0)
    monkeypatch.setattr(growth, "WINDOW_SECONDS", 0.0)
    complaints: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: complaints.append(context))
    bed, bucket = make(threads=32, lanes=32), FarBucket(0.002)
    for number in range(200):
        bucket.put(f"m/{number}", bytes(10))
    for after in range(1, 40, 3):
        error = RuntimeError("a bug")
        bucket._faults["read"] = []
        bucket.calls.clear()
        original = bucket.read

        def read(*arguments: object, original: Callable[..., None] = original, error: Exception = error, after: int = after) -> None:
            if len(bucket.calls) >= after:
                raise error
            original(*arguments)

        bucket.read = read  # type: ignore[method-assign, assignment]
        with pytest.raises(RuntimeError) as caught:
            await bed.pull(bucket, *bucket._objects)
        assert caught.value is error and bed.is_clean and bucket.active == 0
        bucket.read = original  # type: ignore[method-assign]
    assert complaints == []


async def test_pulls_at_once_share_the_threads(make: Callable[..., Bed]) -> None:
    """When the first of eight has all, no other has less than half."""
    bed, bucket = make(threads=4, lanes=4, sizes=SpanSizes(PART, PART, PART)), CrowdedBucket()
    keys = [f"m{number}" for number in range(8)]
    for key in keys:
        bucket.put(key, bytes(40 * PART))
    pulls = [asyncio.create_task(bed.pull(bucket, key)) for key in keys]
    async with asyncio.timeout(20):
        while (lanes := bed.threads._of.get(bucket.endpoint)) is None or lanes._users < 8 * growth.FIRST_LANES:
            await asyncio.sleep(0.001)
        bucket.gate.set()
        await asyncio.gather(*pulls)
    done = Counter[str]()
    for key in bucket.order:
        done[key] += 1
        if done[key] == 40:
            break
    assert min(done[key] for key in keys) >= 20


def on_a_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever temporary folders are."""
    monkeypatch.setattr(preallocation, "is_in_memory", lambda _: False)


@pytest.mark.parametrize("number", [errno.EOPNOTSUPP, errno.ENOSYS])
async def test_where_space_cannot_be_taken_before_it_is_counted_as_it_fills(
    make: Callable[..., Bed], monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """NFS and FUSE: no block is written for the sake of its place."""
    asked: list[int] = []

    def refused(_: int, size_bytes: int) -> None:
        asked.append(size_bytes)
        raise OSError(number, os.strerror(number))

    written: list[int] = []
    original = os.pwrite
    on_a_disk(monkeypatch)
    monkeypatch.setattr(preallocation, "fallocate", refused)
    monkeypatch.setattr(os, "pwrite", lambda file, view, offset: written.append(len(view)) or original(file, view, offset))
    bed, bucket = make(threads=4, lanes=4, sizes=SpanSizes(PART, PART, PART)), MemoryBucket()
    contents = {"a/large": os.urandom(5 * PART + 7), "b": os.urandom(PART)}
    for key, content in contents.items():
        bucket.put(key, content)
    assert await bed.pull(bucket, *contents) == contents
    assert asked == [5 * PART + 7], "only of files that several spans make"
    assert sum(written) == 6 * PART + 7


async def test_a_disk_that_is_broken_when_space_is_taken_is_told(make: Callable[..., Bed], monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what cannot be done at all is left undone."""

    def broken(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    on_a_disk(monkeypatch)
    monkeypatch.setattr(preallocation, "fallocate", broken)
    bed, bucket = make(threads=4, lanes=4, sizes=SpanSizes(PART, PART, PART)), MemoryBucket()
    bucket.put("m", bytes(5 * PART))
    with pytest.raises(AdapterError, match="the model volume cannot be written: Input/output error"):
        await bed.pull(bucket, "m")
    assert bed.is_clean


def test_space_is_really_taken(tmp_path: object) -> None:
    """By the system call; where this machine's file system cannot, the file is only as long."""
    file = os.open(f"{tmp_path}/f", os.O_CREAT | os.O_WRONLY)
    try:
        is_taken = preallocation.preallocate(file, 1 << 20)
        state = os.fstat(file)
    finally:
        os.close(file)
    assert state.st_size == 1 << 20
    assert (state.st_blocks * 512 >= 1 << 20) == is_taken


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="no tmpfs to try")
def test_a_file_in_memory_gets_its_length_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Taking its space would fill it with zeros before the bytes come."""
    monkeypatch.setattr(preallocation, "fallocate", lambda *_: pytest.fail("space was taken"))
    with tempfile.TemporaryFile(dir="/dev/shm") as file:
        assert not preallocation.preallocate(file.fileno(), 1 << 20)
        state = os.fstat(file.fileno())
    assert (state.st_size, state.st_blocks) == (1 << 20, 0)


def test_a_descriptor_that_cannot_be_written_is_an_error() -> None:
    """The number of the failure comes through."""
    file = os.open("/dev/null", os.O_RDONLY)
    try:
        with pytest.raises(OSError) as caught:
            preallocation.fallocate(file, 10)
    finally:
        os.close(file)
    assert caught.value.errno in (errno.EBADF, errno.ENODEV)


async def test_a_single_lane_is_measured_once_the_others_have_left(make: Callable[..., Bed], monkeypatch: pytest.MonkeyPatch) -> None:
    """They end their turns first; what they move meanwhile is not what one moves."""
    seen: list[int] = []

    def look(self: growth.Growth, *_: object, are_all_moving: bool, **__: object) -> None:
        if self.lanes == 1 and are_all_moving:
            seen.append(bucket._inside)
        self.lanes = 1 if are_all_moving else self.lanes

    monkeypatch.setattr(growth.Growth, "look", look)
    monkeypatch.setattr(growth.Growth, "look_seconds", 0.0)
    bed, bucket = make(threads=8, lanes=4), FarBucket(0.02)
    for number in range(120):
        bucket.put(f"m/{number}", b"x")
    await bed.pull(bucket, *bucket._objects)
    assert bucket.most_active == 4
    assert seen and max(seen) == 1
