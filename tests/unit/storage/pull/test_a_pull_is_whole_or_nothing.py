"""The pull engine over a bucket in memory: verified artifacts, or nothing left and no thread running."""

from __future__ import annotations

import asyncio
import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from adapter.errors import AdapterError, DiskFull, SourceChanged, SourceDenied, SourceUnavailable
from adapter.space import Reservation, Space
from adapter.storage.bucket import Bucket, StoredObject
from adapter.storage.lanes import EndpointThreads
from adapter.storage.pull import preallocation
from adapter.storage.pull.puller import Puller
from adapter.storage.pull.spans import SpanSizes
from adapter.telemetry.metrics import REGISTRY
from adapter.waits import Waits
from adapter.workers import Workers
from tests.unit.storage.beds import folder_content, reached

PART = 1000


@pytest.fixture
def make_puller(volume):
    """Pullers with threads of their own."""
    pools = []

    def make(*, threads=4, lanes=4):
        pools.extend([EndpointThreads("pull", threads, "to pull with"), Workers("files", 2)])
        return Puller(volume=volume, pulls=pools[-2], files=pools[-1], lanes=lanes, sizes=SpanSizes(PART, PART, PART))

    yield make
    for pool in pools:
        pool.close()


@pytest.fixture
def puller(make_puller):
    """Four threads, parts of 1000 bytes."""
    return make_puller()


def objects(bucket, *keys):
    return {key: bucket.stored(key) for key in keys}


def reservation(puller: Puller) -> AbstractContextManager[Reservation]:
    """Bounded by the file system alone."""
    return Space(puller._volume.cache_dir, 0, refuses=False).reservation()


async def pulled(puller: Puller, bucket: Bucket, wanted: Mapping[str, StoredObject]) -> Path:
    """An artifact of these objects."""
    with reservation(puller) as room:
        return await puller.pull(bucket, wanted, Waits(time.monotonic), room=room, name=secrets.token_hex(8))


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
    artifact = await pulled(puller, bucket, objects(bucket, *contents))
    assert artifact.parent == volume.artifacts_dir
    found = {str(path.relative_to(artifact)): path.read_bytes() for path in artifact.rglob("*") if path.is_file()}
    assert found == contents
    assert folder_content(volume.staging_dir) == []


async def test_modes_do_not_depend_on_the_umask(puller, bucket):
    """Triton is another user."""
    bucket.put("a/small", b"x")
    bucket.put("a/b/large", bytes(5 * PART))
    before = os.umask(0o077)
    try:
        artifact = await pulled(puller, bucket, objects(bucket, "a/small", "a/b/large"))
    finally:
        os.umask(before)
    modes = {path.relative_to(artifact).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in artifact.rglob("*")}
    assert modes == {"a": 0o755, "a/b": 0o755, "a/small": 0o644, "a/b/large": 0o644}
    assert stat.S_IMODE(artifact.stat().st_mode) == 0o755


async def test_large_files_are_pulled_in_ranges_and_small_ones_in_one(puller, bucket):
    """Every byte is asked for once; empty files not at all."""
    bucket.put("large", bytes(2 * PART + 5))
    bucket.put("small", bytes(PART))
    bucket.put("empty", b"")
    await pulled(puller, bucket, objects(bucket, "large", "small", "empty"))
    assert sorted(bucket.calls) == ["read large 0+1000", "read large 1000+1000", "read large 2000+5", "read small 0+1000"]


async def test_what_has_no_version_is_pulled_in_one(puller, bucket):
    """Two ranges might be of two versions."""
    bucket.etag = lambda key: ""
    bucket.put("large", bytes(2 * PART + 5))
    await pulled(puller, bucket, objects(bucket, "large"))
    assert bucket.calls == ["read large 0+2005"]


async def test_a_pull_of_nothing_is_an_empty_artifact(puller, bucket):
    """An ensemble has no files."""
    artifact = await pulled(puller, bucket, {})
    assert folder_content(artifact) == []


async def test_many_small_files(make_puller, bucket, volume):
    """All there, in many directories."""
    for number in range(500):
        bucket.put(f"d{number % 7}/f{number}", bytes([number % 256]) * (number % 3))
    artifact = await pulled(make_puller(threads=8, lanes=8), bucket, objects(bucket, *bucket._objects))
    assert len([path for path in artifact.rglob("*") if path.is_file()]) == 500


@pytest.mark.parametrize("error", [SourceUnavailable("away"), SourceChanged("changed"), SourceDenied("no"), RuntimeError("a bug")])
@pytest.mark.parametrize("after_bytes", [0, 500])
async def test_the_first_error_wins_and_nothing_is_left(puller, bucket, volume, error, after_bytes):
    """Whatever the others do: they are stopped, awaited, and their files are gone."""
    for number in range(20):
        bucket.put(f"m/{number}", bytes(3 * PART))
    bucket.fail("read", error, after_bytes=after_bytes)
    bucket.hang("read", times=3)
    with pytest.raises(type(error)) as caught:
        await pulled(puller, bucket, objects(bucket, *bucket._objects))
    assert caught.value is error
    assert bucket.active == 0
    assert is_clean(volume)


@pytest.mark.parametrize("lanes", [1, 4])
async def test_a_cancelled_pull_leaves_nothing(make_puller, bucket, volume, lanes):
    """No thread, no staging; and the cancel goes on."""
    for number in range(20):
        bucket.put(f"m/{number}", bytes(3 * PART))
    bucket.hang("read", times=lanes, after_bytes=100)
    task = asyncio.create_task(pulled(make_puller(lanes=lanes), bucket, objects(bucket, *bucket._objects)))
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
    task = asyncio.create_task(pulled(puller, bucket, objects(bucket, *bucket._objects)))
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
        task = asyncio.create_task(pulled(make_puller(threads=2, lanes=2), bucket, objects(bucket, *bucket._objects)))
        for _ in range(ticks):
            await asyncio.sleep(0)
        task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
        outcomes.add(type(result).__name__)
        if not isinstance(result, BaseException):
            volume.discard(result)
        assert is_clean(volume)
    assert "CancelledError" in outcomes


async def test_a_cancel_while_publishing_takes_the_artifact_back(puller, bucket, volume, monkeypatch):
    """The rename happened, but nobody will ever hear of it."""
    loop = asyncio.get_running_loop()
    bucket.put("m", b"x")
    original = volume.publish

    def publish(staged, name):
        loop.call_soon_threadsafe(task.cancel)
        return original(staged, name)

    monkeypatch.setattr(volume, "publish", publish)
    task = asyncio.create_task(pulled(puller, bucket, objects(bucket, "m")))
    (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, asyncio.CancelledError)
    assert is_clean(volume)


async def test_no_room_is_said_before_the_first_byte(puller, bucket, volume, monkeypatch):
    """With both numbers, for people."""
    bucket.put("m", bytes(5 * PART))
    real = os.statvfs(volume.cache_dir)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((real.f_bsize, 1, 100, 10, 4, *real[5:])))
    with pytest.raises(DiskFull, match="the files need 5000 bytes, free are 4 bytes"):
        await pulled(puller, bucket, objects(bucket, "m"))
    assert bucket.calls == []
    assert is_clean(volume)


async def test_no_inodes_is_said_too(puller, bucket, volume, monkeypatch):
    """Many small files can fill a volume that has bytes left."""
    for number in range(30):
        bucket.put(f"m/{number}", b"")
    real = os.statvfs(volume.cache_dir)
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result((*real[:7], 7, *real[8:])))
    with pytest.raises(DiskFull, match="30 files are needed, free are 7 inodes"):
        await pulled(puller, bucket, objects(bucket, *bucket._objects))


@pytest.mark.parametrize(("where", "call"), [(os, "pwrite"), (preallocation, "fallocate"), (os, "mkdir")])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
async def test_a_disk_that_fills_up_is_disk_full(puller, bucket, volume, monkeypatch, where, call, number):
    """Others write too: the check before proves nothing."""
    bucket.put("a/m", bytes(5 * PART))

    def full(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(preallocation, "is_in_memory", lambda _: False)  # wherever temporary folders are
    monkeypatch.setattr(where, call, full)
    with pytest.raises(DiskFull, match=r"the files need 5000 bytes, free are \d+"):
        await pulled(puller, bucket, objects(bucket, "a/m"))
    monkeypatch.undo()
    assert is_clean(volume)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("size_bytes", [PART, 5 * PART])
async def test_a_disk_that_tells_at_the_close_that_it_is_full_is_disk_full(puller, bucket, volume, monkeypatch, size_bytes, number):
    """As file systems of a network do, which write later. Source: close(2)."""
    bucket.put("a/m", bytes(size_bytes))
    close = os.close

    def full(file: int) -> None:
        is_the_file = os.readlink(f"/proc/self/fd/{file}").endswith("/a/m")
        close(file)
        if is_the_file and bucket.calls:
            raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "close", full)
    with pytest.raises(DiskFull, match=rf"the files need {size_bytes} bytes, free are \d+"):
        await pulled(puller, bucket, objects(bucket, "a/m"))
    monkeypatch.undo()
    assert is_clean(volume)


async def test_what_has_failed_is_told_whatever_the_close_says(puller, bucket, volume, monkeypatch):
    bucket.put("a/m", bytes(PART))
    listed, close = objects(bucket, "a/m"), os.close
    bucket.put("a/m", bytes(PART - 1))

    def full(file: int) -> None:
        is_the_file = os.readlink(f"/proc/self/fd/{file}").endswith("/a/m")
        close(file)
        if is_the_file:
            raise OSError(errno.EDQUOT, "quota")

    monkeypatch.setattr(os, "close", full)
    with pytest.raises(SourceChanged):
        await pulled(puller, bucket, listed)
    monkeypatch.undo()
    assert is_clean(volume)


async def test_a_volume_that_breaks_is_no_fault_of_the_store(puller, bucket, volume, monkeypatch):
    """Said in words, as a failure of the volume."""
    bucket.put("m", b"x")

    def broken(*_: object) -> int:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "pwrite", broken)
    with pytest.raises(AdapterError, match="the model volume cannot be written: Input/output error"):
        await pulled(puller, bucket, objects(bucket, "m"))


async def test_partial_writes_are_continued(puller, bucket, monkeypatch):
    """The kernel may take less than it was given."""
    content = os.urandom(3 * PART)
    bucket.put("m", content)
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda file, view, offset: original(file, view[:7], offset))
    artifact = await pulled(puller, bucket, objects(bucket, "m"))
    assert (artifact / "m").read_bytes() == content


async def test_a_file_of_the_wrong_length_is_never_published(puller, bucket, volume):
    """A source that lies about its reads is caught."""
    bucket.put("m", bytes(5 * PART))
    bucket.put("n", b"0123456789")
    wanted = objects(bucket, "m", "n")

    def short(stored, start, length, sink, stop):
        sink(bytes(length - 1) if stored.key == "n" else bytes(length))

    bucket.read = short
    with pytest.raises(SourceUnavailable, match="'n' from memory://b has 9 bytes, listed were 10"):
        await pulled(puller, bucket, wanted)
    assert is_clean(volume)


async def test_one_pull_does_not_starve_another(make_puller, bucket):
    """A pull whose lanes all hang leaves threads to the next."""
    puller = make_puller(threads=4, lanes=2)
    for number in range(10):
        bucket.put(f"big/{number}", bytes(5 * PART))
    bucket.put("small", b"x")
    bucket.hang("read", times=2)
    big = asyncio.create_task(pulled(puller, bucket, objects(bucket, *[f"big/{number}" for number in range(10)])))
    await reached(bucket.hanging)
    while bucket.active < 2:
        await asyncio.sleep(0)
    artifact = await pulled(puller, bucket, objects(bucket, "small"))
    assert (artifact / "small").read_bytes() == b"x"
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
    big = asyncio.create_task(pulled(puller, bucket, objects(bucket, "big")))
    await first.wait()
    await pulled(puller, bucket, objects(bucket, "small"))
    await big
    assert bucket.calls.index("read small 0+1") < 49


async def test_bytes_and_files_are_counted(puller, bucket):
    """By type of store, without model ids."""

    def counted(name):
        return REGISTRY.get_sample_value(f"triton_adapter_pulled_{name}_total", {"type": "memory"}) or 0

    before = counted("bytes"), counted("files")
    bucket.put("a", bytes(2500))
    bucket.put("b", b"")
    await pulled(puller, bucket, objects(bucket, "a", "b"))
    assert (counted("bytes") - before[0], counted("files") - before[1]) == (2500, 2)


async def test_two_pulls_of_one_model_are_two_artifacts(puller, bucket):
    """Nothing of an earlier pull can be served by a later one."""
    bucket.put("m/2/model", b"new")
    bucket.put("m/1/model", b"old")
    first = await pulled(puller, bucket, objects(bucket, "m/1/model", "m/2/model"))
    bucket.remove("m/2/model")
    second = await pulled(puller, bucket, objects(bucket, "m/1/model"))
    assert first != second
    assert folder_content(second) == ["m/", "m/1/", "m/1/model"]


async def test_without_a_name_nothing_is_published(puller, bucket, volume):
    """The caller has the directory, and writes into it before it publishes."""
    bucket.put("a/m", bytes(2 * PART + 5))
    with reservation(puller) as room:
        staged = await puller.pull(bucket, objects(bucket, "a/m"), Waits(time.monotonic), room=room)
        assert room.size_bytes == room.written_bytes == 2 * PART + 5
    assert staged.parent == volume.staging_dir and folder_content(staged) == ["a/", "a/m"]
    assert folder_content(volume.artifacts_dir) == []


async def test_what_was_there_before_stays_beside_what_is_pulled(puller, bucket, volume):
    """Files that did not change are linked from another artifact; only the others are pulled, and counted."""
    staged, other = volume.new_staging(), volume.new_staging()
    (staged / "a").mkdir()
    (other / "same").write_bytes(b"unchanged")
    (staged / "a/same").hardlink_to(other / "same")
    for key in ("a/large", "a/small"):
        bucket.put(key, key.encode() * PART)
    with reservation(puller) as room:
        root = await puller.pull(bucket, objects(bucket, "a/large", "a/small"), Waits(time.monotonic), room=room, staged=staged, name="n")
        assert room.size_bytes == 14 * PART
    assert root == volume.artifacts_dir / "n" and not staged.exists()
    assert {path.name: path.read_bytes() for path in (root / "a").iterdir()} == {
        "same": b"unchanged", "large": b"a/large" * PART, "small": b"a/small" * PART,
    }  # fmt: skip


@pytest.mark.parametrize("size_bytes", [5, 3 * PART])
async def test_a_file_that_was_there_before_is_never_written_to(puller, bucket, volume, size_bytes):
    """Its inode may be another artifact's."""
    staged, other = volume.new_staging(), volume.new_staging()
    (other / "m").write_bytes(b"theirs")
    (staged / "m").hardlink_to(other / "m")
    bucket.put("m", bytes(size_bytes))
    with reservation(puller) as room, pytest.raises(AdapterError, match="File exists"):
        await puller.pull(bucket, objects(bucket, "m"), Waits(time.monotonic), room=room, staged=staged)
    assert (other / "m").read_bytes() == b"theirs" and not staged.exists()


@pytest.mark.parametrize("how", ["fails", "is cancelled"])
async def test_a_pull_that_ends_badly_takes_what_it_was_given_along(puller, bucket, volume, how):
    """Whoever gave it has nothing to clean up."""
    staged = volume.new_staging()
    (staged / "before").write_bytes(b"x")
    bucket.put("m", bytes(3 * PART))
    if how == "fails":
        bucket.fail("read", SourceDenied("no"))
    else:
        bucket.hang("read", times=3)
    with reservation(puller) as room:
        task = asyncio.create_task(puller.pull(bucket, objects(bucket, "m"), Waits(time.monotonic), room=room, staged=staged))
        if how == "is cancelled":
            await reached(bucket.hanging)
            task.cancel()
        (result,) = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(result, SourceDenied if how == "fails" else asyncio.CancelledError)
    assert is_clean(volume)


@pytest.mark.parametrize("method", ["new_staging", "publish"])
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("files", [1, 3])
async def test_a_pull_that_is_cancelled_at_the_volume_leaves_nothing(puller, bucket, volume, monkeypatch, method, when, files):
    """Of one file, one thread does all that several do otherwise."""
    for number in range(files):
        bucket.put(f"m/{number}", bytes(5))
    held, release, original = threading.Event(), threading.Event(), getattr(volume, method)

    def hold(*arguments):
        made = original(*arguments) if when == "after" else None
        held.set()
        assert release.wait(20)
        return original(*arguments) if made is None else made

    monkeypatch.setattr(volume, method, hold)
    task = asyncio.create_task(pulled(puller, bucket, objects(bucket, *(f"m/{number}" for number in range(files)))))
    await reached(held)
    task.cancel()
    await asyncio.sleep(0)
    assert not task.done()
    release.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert is_clean(volume)


async def test_a_pull_of_one_span_needs_one_thread_once(puller, bucket, monkeypatch):
    """Each hop to a thread costs a small model more time than its bytes."""
    bucket.put("m", bytes(PART))
    calls = []
    original = Workers.run
    monkeypatch.setattr(Workers, "run", lambda workers, work: calls.append(workers) or original(workers, work))
    root = await pulled(puller, bucket, objects(bucket, "m"))
    assert (root / "m").read_bytes() == bytes(PART) and len(calls) == 1


@pytest.mark.parametrize("difference", [-1, 1])
async def test_a_span_of_another_length_than_was_asked_for_is_no_part_of_a_file(puller, bucket, volume, difference):
    """The file has its length before its bytes come, so that proves nothing: the gap would be zeros."""
    bucket.put("large", b"x" * (3 * PART))
    stored = objects(bucket, "large")
    read = bucket.read

    def other(stored, start, length, sink, stop):
        read(stored, start, length + (difference if start == PART else 0), sink, stop)

    bucket.read = other
    with pytest.raises(
        SourceUnavailable, match=rf"'large' from memory://b has {PART + difference} bytes from {PART} on, asked were {PART}"
    ):
        await pulled(puller, bucket, stored)
    assert is_clean(volume)
