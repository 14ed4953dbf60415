"""While a request waits, its `waits` tell for what: the answer, the part without progress, the claim; and the last trouble."""

from __future__ import annotations

import asyncio
import os
import re
import threading
import time
from pathlib import Path

import pytest

from adapter.errors import SourceUnavailable
from adapter.waits import Waits
from tests.builders import a_spec
from tests.unit.storage.beds import MIB, CountedPauses, opened, reached, retried, write_tree


@pytest.fixture
def waits():
    """What one load waits for."""
    return Waits(time.monotonic)


async def cancelled(task):
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_listing_that_hangs_is_named(bed, waits):
    """With the bucket, and with what went wrong before."""
    bed.bucket.put("m/model", b"abc")
    bed.bucket.fail("list", SourceUnavailable("the last answer was 503"))
    bed.bucket.hang("list")
    load = asyncio.create_task(bed.store.open(a_spec(), waits))
    await reached(bed.bucket.hanging)
    assert waits.words().startswith("waiting for an answer of bucket 'b' in memory to a listing for ")
    assert waits.words().endswith(" s (last trouble: the last answer was 503)")
    await cancelled(load)
    assert waits.words() is None


async def test_the_part_without_progress_is_named(bed, waits):
    """Of a pull whose other parts have come."""
    bed.bucket.put("m/weights.bin", bytes(3 * MIB))
    model = await bed.store.open(a_spec(), waits)
    bed.bucket.hang("read", after_bytes=1000)
    pull = asyncio.create_task(model.fetch(model.listing.files))
    await reached(bed.bucket.hanging)
    async with asyncio.timeout(20):
        while bed.bucket.active > 1 or "free thread" in waits.words():  # until the other parts have come
            await asyncio.sleep(0)
    assert re.match(r"waiting for bytes (0-1048575|1048576-2097151|2097152-3145727) of 'm/weights.bin' for ", waits.words())
    await cancelled(pull)
    assert waits.words() is None


async def test_a_small_file_that_hangs_is_named(bed, waits):
    """A config is read before anything is pulled."""
    bed.bucket.put("m/config.pbtxt", b"platform: x")
    model = await bed.store.open(a_spec(), waits)
    bed.bucket.hang("read")
    read = asyncio.create_task(model.read(model.listing.files[0]))
    await reached(bed.bucket.hanging)
    assert waits.words().startswith("waiting for bytes 0-10 of 'm/config.pbtxt' for ")
    await cancelled(read)


async def test_a_load_without_a_free_lane_says_so(bed, waits):
    """Sixteen listings hang; the seventeenth load is not asked for yet, and a cancel leaves nothing of it."""
    bed.bucket.put("m/model", b"abc")
    bed.bucket.hang("list", times=16)
    others = [asyncio.create_task(opened(bed.store, a_spec())) for _ in range(16)]
    while bed.bucket.active < 16:
        await asyncio.sleep(0.001)
    for outcome in ("cancelled", "loaded"):
        load = asyncio.create_task(bed.store.open(a_spec(), waits))
        while waits.words() is None:
            await asyncio.sleep(0.001)
        assert waits.words().startswith("waiting for a free lane to s3 (all 16 wait for it) for ")
        if outcome == "cancelled":
            await cancelled(load)
            assert waits.words() is None
    await cancelled(others[0])
    assert (await load).listing.size_bytes == 3
    assert waits.words() is None
    for other in others:
        await cancelled(other)


async def test_a_pull_without_a_free_lane_says_so(bed, waits):
    """All four lanes to the endpoint hang in another pull."""
    for number in range(4):
        bed.bucket.put(f"m/{number}", b"abc")
        bed.bucket.put(f"other/{number}", b"abc")
    model = await bed.store.open(a_spec(), waits)
    other = await opened(bed.store, a_spec("other"))
    bed.bucket.hang("read", times=4)
    first = asyncio.create_task(other.fetch(other.listing.files))
    while bed.bucket.active < 4:
        await asyncio.sleep(0.001)
    pull = asyncio.create_task(model.fetch(model.listing.files))
    while waits.words() is None:
        await asyncio.sleep(0.001)
    assert waits.words().startswith("waiting for a free lane to memory (all 4 wait for it) for ")
    await cancelled(first)
    await bed.store.release(await pull)
    assert waits.words() is None


async def test_a_claim_that_hangs_is_named(bed, waits, tmp_path, monkeypatch):
    """A network volume can hang like any store."""
    write_tree(tmp_path / "claims/c/m", {"file": b"abc"})
    bed.configure("k", {"type": "pvc", "name": "c"})
    begun, release, scandir = threading.Event(), threading.Event(), os.scandir

    def hanging(path):
        if tmp_path / "claims" in Path(path).parents:
            begun.set()
            release.wait(20)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", hanging)
    load = asyncio.create_task(bed.store.open(a_spec(storage_key="k"), waits))
    await reached(begun)
    assert waits.words().startswith("waiting for the volume claim 'c' for ")
    release.set()
    assert (await load).listing.size_bytes == 3
    assert waits.words() is None


async def test_a_volume_that_hangs_at_the_first_look_is_named(bed, waits, monkeypatch):
    """What the cache has is read once, before anything is listed."""
    begun, release, scandir = threading.Event(), threading.Event(), os.scandir

    def hanging(path):
        begun.set()
        release.wait(20)
        return scandir(path)

    bed.bucket.put("m/file", b"abc")
    monkeypatch.setattr(os, "scandir", hanging)
    load = asyncio.create_task(bed.store.open(a_spec(), waits))
    await reached(begun)
    assert waits.words().startswith("waiting for the volume to tell what the cache has for ")
    release.set()
    assert (await load).listing.size_bytes == 3


def test_progress_ends_the_trouble_and_begins_the_wait_anew(bucket, health):
    """So that of many parts the one is named that stands still."""
    now = 0.0
    waits, told = Waits(lambda: now), []

    class Told(CountedPauses):
        def pause(self, seconds):
            told.append(waits.words())

    def sink(chunk):
        nonlocal now
        told.append(waits.words())
        now += 10

    bucket.put("m", bytes(200))
    bucket.chunk_bytes = 100
    bucket.fail("read", SourceUnavailable("cut"))
    bucket.fail("read", SourceUnavailable("cut again"), after_bytes=100)
    retried(bucket, waits, health).read(bucket.stored("m"), 0, 200, sink, Told())
    first = "waiting for bytes 0-199 of 'm' for 0.0 s"
    assert told == [f"{first} (last trouble: cut)", f"{first} (last trouble: cut)", f"{first} (last trouble: cut again)",
                    f"{first} (last trouble: cut again)"]  # fmt: skip
    assert waits.words() is None


async def test_a_survey_waits_for_nobody_to_tell(bed):
    """Its waits are its own."""
    bed.bucket.put("m/model", b"abc")
    assert (await bed.store.survey(a_spec(), 20)).seen_bytes == 3
    assert (await opened(bed.store, a_spec())).listing.size_bytes == 3
