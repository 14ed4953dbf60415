"""Idle artifacts give way before a pull or an unpacking fails for room; what cannot fit is refused, and leaves nothing."""

from __future__ import annotations

import asyncio
import io
import os
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapter.errors import DiskFull
from adapter.space import Space
from adapter.storage.bucket import Sink, StoredObject
from adapter.storage.lanes import EndpointThreads
from adapter.storage.pull.archives import Unpacking
from adapter.storage.pull.puller import Puller
from adapter.storage.pull.spans import SpanSizes
from adapter.volume import Volume
from adapter.waits import Waits
from adapter.workers import Stop, Workers
from tests.fakes.idle_artifacts import IdleArtifacts
from tests.fakes.memory_bucket import MemoryBucket
from tests.real.small_disk import small_disk
from tests.unit.storage.beds import folder_content, reached

MIB = 1024 * 1024
PART = MIB // 4


class GatedBucket(MemoryBucket):
    """Gives the first byte of anything when its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.gate.set()

    def shut(self) -> None:
        self.hanging.clear()
        self.gate.clear()

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        if not self.gate.is_set():
            self.hanging.set()
            self.gate.wait(20)
        super().read(wanted, start, length, sink, stop)


class Bed:
    """A puller on one volume, with a budget and idle artifacts."""

    def __init__(self, volume: Volume, max_bytes: int, *, refuses: bool = False) -> None:
        self.volume = volume
        self.bucket = GatedBucket()
        self.space = Space(volume.cache_dir, max_bytes, refuses=refuses, trash=volume.trash)
        self.idle = IdleArtifacts(self.space, volume.cache_dir)
        self._pools = (EndpointThreads("pull", 4, "to pull with"), Workers("files", 2))
        self.puller = Puller(volume=volume, pulls=self._pools[0], files=self._pools[1], lanes=4, sizes=SpanSizes(PART, PART, PART))

    async def pull(self, *keys: str) -> Path:
        with self.space.reservation() as room:
            objects = {key: self.bucket.stored(key) for key in keys}
            return await self.puller.pull(self.bucket, objects, Waits(time.monotonic), room=room, name="a")

    def unpack(self, name: str, archive: Path, target: Path) -> dict[str, int]:
        with self.space.reservation() as room, self.volume.writing(0):
            sizes = Unpacking(name=name, target=target, room=room, max_bytes=100 * MIB, stop=Stop()).run(archive)
            assert room.size_bytes == room.written_bytes == sum(sizes.values()), "as much as the files are"
            return sizes

    @property
    def is_clean(self) -> bool:
        return not any(folder_content(folder) for folder in (self.volume.staging_dir, self.volume.artifacts_dir, self.volume.trash_dir))

    def close(self) -> None:
        for pool in self._pools:
            pool.close()


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Bed]]:
    """Beds on a file system of 8 MiB and 200 inodes."""
    beds: list[Bed] = []
    with small_disk(tmp_path / "small") as root:
        volume = Volume(root / "_triton_models", root / "_adapter")
        volume.claim()

        def made(max_bytes: int = 0, *, refuses: bool = False) -> Bed:
            beds.append(Bed(volume, max_bytes, refuses=refuses))
            return beds[-1]

        yield made
        for bed in beds:
            bed.close()
        volume.close()


async def test_a_pull_makes_idle_artifacts_go(make: Callable[..., Bed]) -> None:
    """As many as it needs, before its first byte."""
    bed = make()
    content = os.urandom(3 * MIB)
    bed.bucket.put("m", content)
    bed.idle.add(MIB, files=7)
    root = await bed.pull("m")
    assert (root / "m").read_bytes() == content
    assert 3 <= len(bed.idle.files) <= 5


async def test_a_pull_goes_on_when_the_volume_fills_up_in_the_middle(make: Callable[..., Bed]) -> None:
    """Small files have no place before they are written. Somebody fills the volume, and what is idle goes."""
    bed = make()
    for number in range(12):
        bed.bucket.put(f"m/{number}", bytes([number]) * PART)
    bed.bucket.shut()
    bed.idle.add(MIB, files=4)
    pulling = asyncio.create_task(bed.pull(*(f"m/{number}" for number in range(12))))
    await reached(bed.bucket.hanging)
    fill(bed.volume.cache_dir / "somebody's")
    bed.bucket.gate.set()
    root = await pulling
    assert {path.name: path.read_bytes() for path in (root / "m").iterdir()} == {
        str(number): bytes([number]) * PART for number in range(12)
    }
    assert 0 <= len(bed.idle.files) <= 1


async def test_a_pull_that_finds_no_room_leaves_nothing(make: Callable[..., Bed]) -> None:
    """All that is idle has gone in vain; both numbers are said."""
    bed = make()
    for number in range(12):
        bed.bucket.put(f"m/{number}", bytes(PART))
    bed.bucket.shut()
    bed.idle.add(PART, files=2)
    pulling = asyncio.create_task(bed.pull(*(f"m/{number}" for number in range(12))))
    await reached(bed.bucket.hanging)
    fill(bed.volume.cache_dir / "somebody's")
    bed.bucket.gate.set()
    with pytest.raises(DiskFull, match=r"no room \(No space left on device\): the files need 3 MiB \(3145728 bytes\), free are"):
        await pulling
    assert bed.idle.files == [] and bed.is_clean and bed.space.staging_bytes() == 0


async def test_inodes_are_made_free_too(make: Callable[..., Bed]) -> None:
    """Many small files: bytes are left, names are not."""
    bed = make()
    for number in range(60):
        bed.bucket.put(f"m/{number}", b"x")
    bed.idle.fill(1)
    await bed.pull(*(f"m/{number}" for number in range(60)))
    assert bed.idle.files


async def test_a_pull_beyond_the_budget_asks_the_store_for_nothing(make: Callable[..., Bed]) -> None:
    """The setting is named; a smaller model is pulled."""
    bed = make(2 * MIB, refuses=True)
    bed.idle.add(MIB)
    bed.bucket.put("large", bytes(3 * MIB))
    bed.bucket.put("small", bytes(MIB + PART))
    with pytest.raises(DiskFull, match=r"^CACHE_MAX_BYTES is reached: the files need 3 MiB"):
        await bed.pull("large")
    assert bed.bucket.calls == [] and bed.is_clean and len(bed.idle.files) == 1
    await bed.pull("small")
    assert bed.idle.files == []


async def test_of_pulls_that_fit_alone_only_one_is_done(make: Callable[..., Bed]) -> None:
    """By the budget and by the file system alike: both would fail in the middle."""
    for max_bytes in (6 * MIB, 0):
        bed = make(max_bytes, refuses=bool(max_bytes))
        for number in range(16):
            bed.bucket.put(f"m/{number}", bytes(PART))
            bed.bucket.put(f"n/{number}", bytes(PART))
        bed.bucket.put("third", bytes(PART))
        bed.bucket.shut()
        one = asyncio.create_task(bed.pull(*(f"m/{number}" for number in range(16))))
        await reached(bed.bucket.hanging)
        with pytest.raises(DiskFull):
            await bed.pull(*(f"n/{number}" for number in range(16)), "third")
        bed.bucket.gate.set()
        bed.volume.discard(await one)
        assert bed.space.staging_bytes() == 0


def tar_of(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return packed.getvalue()


def zip_of(files: dict[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return packed.getvalue()


KINDS = {"m.tar.gz": tar_of, "m.zip": zip_of}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("files", [{"large": 5 * MIB}, {f"1/{name}": PART for name in range(20)}, {f"{name}": 1 for name in range(90)}])
def test_an_unpacking_makes_idle_artifacts_go(make: Callable[..., Bed], tmp_path: Path, name: str, files: dict[str, int]) -> None:
    """For bytes and for inodes; a tar does not say before what it will become."""
    bed = make()
    (tmp_path / name).write_bytes(KINDS[name]({path: bytes(size) for path, size in files.items()}))
    target = bed.volume.new_staging()
    bed.idle.fill(1 if len(files) > 50 else PART)
    assert bed.unpack(name, tmp_path / name, target) == files
    assert bed.idle.asked


@pytest.mark.parametrize("name", KINDS)
def test_an_unpacking_beyond_the_budget_is_refused(make: Callable[..., Bed], tmp_path: Path, name: str) -> None:
    """When a tar comes to it; no more than the budget is written before."""
    bed = make(2 * MIB, refuses=True)
    (tmp_path / name).write_bytes(KINDS[name]({f"{number}": bytes(PART) for number in range(20)}))
    target = bed.volume.new_staging()
    with pytest.raises(DiskFull, match=r"^CACHE_MAX_BYTES is reached"):
        bed.unpack(name, tmp_path / name, target)
    assert sum(path.stat().st_size for path in target.iterdir()) <= 2 * MIB
    assert bed.space.staging_bytes() == 0


def fill(path: Path) -> None:
    """Take all bytes that are left."""
    with path.open("wb", buffering=0) as file:
        for size_bytes in (MIB, 4096):
            try:
                while True:
                    file.write(bytes(size_bytes))
            except OSError:
                continue
