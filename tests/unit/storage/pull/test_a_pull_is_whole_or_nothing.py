"""The pull engine over a bucket in memory: verified artifacts, or nothing left and no thread running."""

from __future__ import annotations

import asyncio
import errno
import os
import stat
import time

import pytest

from adapter.errors import AdapterError, DiskFull, SourceChanged, SourceDenied, SourceUnavailable
from adapter.storage.pull.puller import Puller
from adapter.telemetry.metrics import REGISTRY
from adapter.waits import Waits
from adapter.workers import Workers
from tests.unit.storage.beds import folder_content, reached

PART = 1000


@pytest.fixture
def make_puller(volume):
    """Pullers with threads of their own."""
    pools = []

    def make(*, threads=4, lanes=4, part_bytes=PART):
        pools.extend([Workers("pull", threads), Workers("files", 2)])
        return Puller(volume=volume, pulls=pools[-2], files=pools[-1], lanes=lanes, part_bytes=part_bytes)

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def puller(make_puller):
    """Four threads, parts of 1000 bytes."""
    return make_puller()


def objects(bucket, *keys):
    return {key: bucket.stored(key) for key in keys}


def is_clean(volume):
    return [name for folder in (volume.staging_dir, volume.artifacts_dir, volume.trash_dir) for name in folder_content(folder)] == []


async def test_an_artifact_holds_every_file_at_its_path(puller, bucket, volume):
    """Large, small, exact multiples, empty, nested; nothing else."""
    contents = {
        "model.onnx": os.urandom(10 * PART + 1), "1/exact": os.urandom(3 * PART), "1/one": b"x", "1/__init__.py": b"",
        "a/b/c/deep": os.urandom(PART + 1), "1/part": os.urandom(PART),
    }  # fmt: skip
    for key, content in contents.items():
        bucket.put(key, content)
    artifact = await puller.pull(bucket, objects(bucket, *contents), Waits(time.monotonic))
    assert artifact.is_ours and artifact.root.parent == volume.artifacts_dir
    found = {str(path.relative_to(artifact.root)): path.read_bytes() for path in artifact.root.rglob("*") if path.is_file()}
    assert found == contents
    assert folder_content(volume.staging_dir) == []


async def test_modes_do_not_depend_on_the_umask(puller, bucket):
    """Triton is another user."""
    bucket.put("a/small", b"x")
    bucket.put("a/b/large", bytes(5 * PART))
    before = os.umask(0o077)
    try:
        artifact = await puller.pull(bucket, objects(bucket, "a/small", "a/b/large"), Waits(time.monotonic))
    finally:
        os.umask(before)
    modes = {path.relative_to(artifact.root).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in artifact.root.rglob("*")}
    assert modes == {"a": 0o755, "a/b": 0o755, "a/small": 0o644, "a/b/large": 0o644}
    assert stat.S_IMODE(artifact.root.stat().st_mode) == 0o755


async def test_large_files_are_pulled_in_ranges_and_small_ones_in_one(puller, bucket):
    """Every byte is asked for once; empty files not at all."""
    bucket.put("large", bytes(2 * PART + 5))
    bucket.put("small", bytes(PART))
    bucket.put("empty", b"")
    await puller.pull(bucket, objects(bucket, "large", "small", "empty"), Waits(time.monotonic))
    assert sorted(bucket.calls) == ["read large 0+1000", "read large 1000+1000", "read large 2000+5", "read small 0+1000"]


async def test_what_has_no_version_is_pulled_in_one(puller, bucket):
    """Two ranges might be of two versions."""
    bucket.etag = lambda key: ""
    bucket.put("large", bytes(2 * PART + 5))
    await puller.pull(bucket, objects(bucket, "large"), Waits(time.monotonic))
    assert bucket.calls == ["read large 0+2005"]


async def test_a_pull_of_nothing_is_an_empty_artifact(puller, bucket):
    """An ensemble has no files."""
    artifact = await puller.pull(bucket, {}, Waits(time.monotonic))
    assert folder_content(artifact.root) == []


async def test_many_small_files(make_puller, bucket, volume):
    """All there, in many directories."""
    for number in range(500):
        bucket.put(f"d{number % 7}/f{number}", bytes([number % 256]) * (number % 3))
    artifact = await make_puller(threads=8, lanes=8).pull(bucket, objects(bucket, *bucket._objects), Waits(time.monotonic))
    assert len([path for path in artifact.root.rglob("*") if path.is_file()]) == 500


@pytest.mark.parametrize("error", [SourceUnavailable("away"), SourceChanged("changed"), SourceDenied("no"), RuntimeError("a bug")])
@pytest.mark.parametrize("after_bytes", [0, 500])
async def test_the_first_error_wins_and_nothing_is_left(puller, bucket, volume, error, after_bytes):
    """Whatever the others do: they are stopped, awaited, and their files are gone."""
    for number in range(20):
        bucket.put(f"m/{number}", bytes(3 * PART))
    bucket.fail("read", error, after_bytes=after_bytes)
    bucket.hang("read", times=3)
    with pytest.raises(type(error)) as caught:
        await puller.pull(bucket, objects(bucket, *bucket._objects), Waits(time.monotonic))
    assert caught.value is error
    assert bucket.active == 0
    assert is_clean(volume)


@pytest.mark.parametrize("lanes", [1, 4])
async def test_a_cancelled_pull_leaves_nothing(make_puller, bucket, volume, lanes):
    """No thread, no staging; and the cancel goes on."""
    for number in range(20):
        bucket.put(f"m/{number}", bytes(3 * PART))
    bucket.hang("read", times=lanes, after_bytes=100)
    task = asyncio.create_task(make_puller(lanes=lanes).pull(bucket, objects(bucket, *bucket._objects), Waits(time.monotonic)))
    await reached(bucket.hanging)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bucket.active == 0
    assert is_clean(volume)


async def test_a_pull_that_is_cancelled_again_and_again_leaves_nothing(puller, bucket, volume):
    """A second cancel does not interrupt the clean-up."""
    for number in range(20):
        bucket.put(f"m/{number}", bytes(3 * PART))
    bucket.hang("read", times=4)
    task = asyncio.create_task(puller.pull(bucket, objects(bucket, *bucket._objects), Waits(time.monotonic)))
    await reached(bucket.hanging)
    while not task.done():
        task.cancel()
        await asyncio.sleep(0)
    assert task.cancelled()
    assert bucket.active == 0
    assert is_clean(volume)


async def test_a_cancel_at_any_await_leaves_nothing(make_puller, bucket, volume):
    """Wherever the pull stands when the cancel comes; also when it has just published."""
    for number in range(6):
        bucket.put(f"m/{number}", bytes(2 * PART))
    outcomes = set()
    for ticks in range(0, 60, 2):
        task = asyncio.create_task(make_puller(threads=2, lanes=2).pull(bucket, objects(bucket, *bucket._objects), Waits(time.monotonic)))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        outcomes.add(type(result).__name__)
        if not isinstance(result, BaseException):
            volume.discard(result.root)
        assert is_clean(volume)
    assert "CancelledError" in outcomes


async def test_a_cancel_while_publishing_takes_the_artifact_back(puller, bucket, volume, monkeypatch):
    """The rename happened, but nobody will ever hear of it."""
    loop = asyncio.get_running_loop()
    bucket.put("m", b"x")
    original = volume.publish

    def publish(staged):
        loop.call_soon_threadsafe(task.cancel)
        return original(staged)

    monkeypatch.setattr(volume, "publish", publish)
    task = asyncio.create_task(puller.pull(bucket, objects(bucket, "m"), Waits(time.monotonic)))
    (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, asyncio.CancelledError)
    assert is_clean(volume)


async def test_no_room_is_said_before_the_first_byte(puller, bucket, volume, monkeypatch):
    """With both numbers, for people."""
    bucket.put("m", bytes(5 * PART))
    real = os.statvfs(volume.cache_dir)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((real.f_bsize, 1, 100, 10, 4, *real[5:])))
    with pytest.raises(DiskFull, match="the files need 5000 bytes, free are 4 bytes"):
        await puller.pull(bucket, objects(bucket, "m"), Waits(time.monotonic))
    assert bucket.calls == []
    assert is_clean(volume)


async def test_no_inodes_is_said_too(puller, bucket, volume, monkeypatch):
    """Many small files can fill a volume that has bytes left."""
    for number in range(30):
        bucket.put(f"m/{number}", b"")
    real = os.statvfs(volume.cache_dir)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*real[:7], 7, *real[8:])))
    with pytest.raises(DiskFull, match="30 files are needed, free are 7 inodes"):
        await puller.pull(bucket, objects(bucket, *bucket._objects), Waits(time.monotonic))


@pytest.mark.parametrize("call", ["pwrite", "posix_fallocate", "mkdir"])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_disk_that_fills_up_is_disk_full(puller, bucket, volume, monkeypatch, call, number):
    """Others write too: the check before proves nothing."""
    bucket.put("a/m", bytes(5 * PART))

    def full(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, full)
    with pytest.raises(DiskFull, match=r"the files need 5000 bytes, free are \d+"):
        await puller.pull(bucket, objects(bucket, "a/m"), Waits(time.monotonic))
    monkeypatch.undo()
    assert is_clean(volume)


async def test_a_volume_that_breaks_is_no_fault_of_the_store(puller, bucket, volume, monkeypatch):
    """Said in words, as a failure of the volume."""
    bucket.put("m", b"x")

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(AdapterError, match="the model volume cannot be written: Input/output error"):
        await puller.pull(bucket, objects(bucket, "m"), Waits(time.monotonic))


async def test_partial_writes_are_continued(puller, bucket, monkeypatch):
    """The kernel may take less than it was given."""
    content = os.urandom(3 * PART)
    bucket.put("m", content)
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, view, offset: original(file, view[:7], offset))
    artifact = await puller.pull(bucket, objects(bucket, "m"), Waits(time.monotonic))
    assert (artifact.root / "m").read_bytes() == content


async def test_a_file_of_the_wrong_length_is_never_published(puller, bucket, volume):
    """A source that lies about its reads is caught."""
    bucket.put("m", bytes(5 * PART))
    bucket.put("n", b"0123456789")
    wanted = objects(bucket, "m", "n")

    def short(stored, start, length, sink, stop):
        sink(bytes(length - 1) if stored.key == "n" else bytes(length))

    bucket.read = short
    with pytest.raises(SourceUnavailable, match="'n' from memory://b has 9 bytes, listed were 10"):
        await puller.pull(bucket, wanted, Waits(time.monotonic))
    assert is_clean(volume)


async def test_one_pull_does_not_starve_another(make_puller, bucket):
    """A pull whose lanes all hang leaves threads to the next."""
    puller = make_puller(threads=4, lanes=2)
    for number in range(10):
        bucket.put(f"big/{number}", bytes(5 * PART))
    bucket.put("small", b"x")
    bucket.hang("read", times=2)
    big = asyncio.create_task(puller.pull(bucket, objects(bucket, *[f"big/{number}" for number in range(10)]), Waits(time.monotonic)))
    await reached(bucket.hanging)
    while bucket.active < 2:
        await asyncio.sleep(0)
    artifact = await puller.pull(bucket, objects(bucket, "small"), Waits(time.monotonic))
    assert (artifact.root / "small").read_bytes() == b"x"
    big.cancel()
    await asyncio.gather(big, return_exceptions=True)


async def test_a_big_pull_gives_its_thread_back_after_each_part(make_puller, bucket):
    """Even one thread serves two pulls in turn."""
    puller = make_puller(threads=1, lanes=1)
    bucket.put("big", bytes(50 * PART))
    bucket.put("small", b"x")
    first = asyncio.Event()
    loop = asyncio.get_running_loop()
    original = bucket.read

    def read(*arguments):
        loop.call_soon_threadsafe(first.set)
        return original(*arguments)

    bucket.read = read
    big = asyncio.create_task(puller.pull(bucket, objects(bucket, "big"), Waits(time.monotonic)))
    await first.wait()
    await puller.pull(bucket, objects(bucket, "small"), Waits(time.monotonic))
    await big
    assert bucket.calls.index("read small 0+1") < 49


async def test_bytes_and_files_are_counted(puller, bucket):
    """By type of store, without model ids."""

    def counted(name):
        return REGISTRY.get_sample_value(f"triton_adapter_pulled_{name}_total", {"type": "memory"}) or 0

    before = counted("bytes"), counted("files")
    bucket.put("a", bytes(2500))
    bucket.put("b", b"")
    await puller.pull(bucket, objects(bucket, "a", "b"), Waits(time.monotonic))
    assert (counted("bytes") - before[0], counted("files") - before[1]) == (2500, 2)


async def test_two_pulls_of_one_model_are_two_artifacts(puller, bucket):
    """Nothing of an earlier pull can be served by a later one."""
    bucket.put("m/2/model", b"new")
    bucket.put("m/1/model", b"old")
    first = await puller.pull(bucket, objects(bucket, "m/1/model", "m/2/model"), Waits(time.monotonic))
    bucket.remove("m/2/model")
    second = await puller.pull(bucket, objects(bucket, "m/1/model"), Waits(time.monotonic))
    assert first.root != second.root
    assert folder_content(second.root) == ["m/", "m/1/", "m/1/model"]
