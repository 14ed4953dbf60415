"""
One claim or one store that hangs, seen from ModelMesh: it delays its own models, and no others.

The claim is a real mount (FUSE) whose server stops to answer; the store accepts connections and says nothing.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from adapter.storage.mounted import reads
from tests.builders import predict_request
from tests.fakes.s3_proxy import Fault, S3Proxy
from tests.fakes.slow_volume import SlowVolume, can_mount
from tests.fault.conftest import BUCKET, MODEL, System, until, until_ready
from tests.unit.storage.rigs import write_tree

Code = grpc.StatusCode
BUDGET_SECONDS = 12
SOON_SECONDS = 9
"""What takes some tens of milliseconds; a load that waited for a hung one would take its whole budget."""
CLAIM = {"storage_params": {"type": "pvc", "name": "hung"}, "storage_key": ""}
needs_mount = pytest.mark.skipif(not can_mount(), reason="needs /dev/fuse, and the right to mount")


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    return {"LOADTIME_TIMEOUT": str(BUDGET_SECONDS * 1000), "PVC_MOUNTS_DIR": str(tmp_path / "claims"), "REQUEST_ENDPOINTS_DENIED": ""}


@pytest.fixture
async def system(system: System) -> System:
    """ModelMesh has asked for the status, as it does before it sends anything."""
    await until_ready(system.runtime)
    return system


@pytest.fixture
def claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowVolume]:
    """The claim `hung`, with a model at `m`; beside it the claim `well`, with the same."""
    monkeypatch.setattr(reads, "SILENT_SECONDS", 1.0)
    with mounted_claim(tmp_path) as volume:
        yield volume


def mounted_claim(folder: Path) -> SlowVolume:
    """Not mounted yet."""
    (folder / "claims/hung").mkdir(parents=True)
    for there in ("behind", "claims/well"):
        write_tree(folder / there / "m", {"1/model.py": MODEL, "config.pbtxt": b'backend: "python"'})
    return SlowVolume(folder / "behind", folder / "claims/hung")


async def ended(call: Any) -> grpc.aio.AioRpcError | None:
    """How a call fails; None when it does not."""
    try:
        await call
    except grpc.aio.AioRpcError as failure:
        return failure
    return None


class Timed:
    """Fails when its block takes longer than a call that waits for nothing."""

    def __enter__(self) -> None:
        self._began = time.monotonic()

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            assert time.monotonic() - self._began < SOON_SECONDS


async def everything_else_works(system: System) -> None:
    """Loads from S3, predictions, equal loads, unloads, readiness: each as quick as ever."""
    weights = os.urandom(3_000_000)
    for number in range(3):
        system.put(f"other{number}", model=MODEL, weights=weights)
    await system.load("other0", "other0")  # the first client imports its library
    await system.unload("other0")
    with Timed():
        assert system.lifecycle.readiness() is None
        predicted = await system.runtime.predictModelSize(predict_request("predicted", "python", "other0"), timeout=0.5)
        assert 3_000_000 <= predicted.sizeInBytes < 10_000_000, "its own files were listed"
        await asyncio.gather(*(system.load(f"other{number}", f"other{number}") for number in range(3)))
        await system.load("other0", "other0")
        assert set(system.triton.in_memory) >= {"other0", "other1", "other2"}
        for number in range(3):
            await system.unload(f"other{number}")


def waiting_for(system: System, words: str) -> int:
    """How many loads say that they wait for this."""
    return sum(words in (operation.obstacle or "") for operation in system.lifecycle.registry.operations())


def threads_named(start: str) -> int:
    return sum(thread.name.startswith(start) for thread in threading.enumerate())


@needs_mount
async def test_sixteen_loads_from_a_claim_that_hangs_delay_no_other_load(system: System, claim: SlowVolume) -> None:
    """A model that was placed from there before is unloaded, too; and the claim serves again when it answers again."""
    await system.load("placed", "m", **CLAIM)
    placed = system.volume.repository_dir / "placed"
    assert any(path.is_symlink() for path in placed.rglob("*"))
    claim.hang()
    loads = [asyncio.ensure_future(ended(system.load(f"hung{number}", "m", **CLAIM))) for number in range(16)]
    await until(lambda: waiting_for(system, "the volume claim 'hung'") == 16, "all loads wait for the claim")

    await everything_else_works(system)
    with Timed():
        await system.load("well", "m", storage_key="", storage_params={"type": "pvc", "name": "well"})
        await system.unload("well")
        await system.unload("placed")
        await system.unload("hung0")
        predicted = await system.runtime.predictModelSize(predict_request("predicted", "python", "never loaded", **CLAIM), timeout=0.5)
        assert predicted.sizeInBytes == 1_000_000, "nothing is known"
    for failure in await asyncio.gather(*loads):
        assert failure is not None
        if "unload" not in (failure.details() or ""):
            assert failure.code() is Code.UNAVAILABLE
            assert "the volume claim 'hung' does not answer: " in (failure.details() or "")

    with Timed():  # its threads are known to hang
        failure = await system.failure("later", "m", **CLAIM)
        assert "all 2 threads that may read it hang, the first for " in (failure.details() or "")
    assert system.leftovers() == []
    claim.heal()
    await system.load("healed", "m", **CLAIM)
    await until(lambda: threads_named("claim-hung") == reads.THREADS, "two threads, and none of an earlier adapter")
    await system.unload("healed")
    assert system.leftovers() == []


@needs_mount
@pytest.mark.parametrize("there", ["{claims}/hung/m", pytest.param("{root}/id/chain", marks=pytest.mark.long)])
async def test_a_link_of_the_storage_helper_into_a_claim_that_hangs(system: System, claim: SlowVolume, tmp_path: Path, there: str) -> None:
    """It is found without a look into the claim, through other links too, so it holds the claim's threads and no others."""
    root = system.volume.repository_dir.parent
    (root / "id").mkdir()
    (root / "id/chain").symlink_to("../id/again")
    (root / "id/again").symlink_to(tmp_path / "claims/../claims/hung/m")
    (root / "id/model").symlink_to(there.format(claims=tmp_path / "claims", root=root))
    path = str(root / "id/model")
    await system.load("helped", path, disk_size_bytes=100, storage_key="")
    await system.unload("helped")
    claim.hang()
    loads = [asyncio.ensure_future(ended(system.load(f"hung{number}", path, disk_size_bytes=100, storage_key=""))) for number in range(16)]
    await until(lambda: waiting_for(system, "the volume claim 'hung'") == 16, "all loads wait for the claim")

    await everything_else_works(system)

    for failure in await asyncio.gather(*loads):
        assert failure is not None and failure.code() is Code.UNAVAILABLE
        assert "the volume claim 'hung' does not answer: " in (failure.details() or "")
    claim.heal()
    await system.load("helped", path, disk_size_bytes=100, storage_key="")


@needs_mount
async def test_a_link_from_a_model_into_another_claim_is_refused_without_a_look(system: System, claim: SlowVolume, tmp_path: Path) -> None:
    """So that the claim that is well does not hang with the other one."""
    (tmp_path / "claims/well/m/1/away.bin").symlink_to(tmp_path / "claims/hung/m/1/model.py")
    claim.hang()
    with Timed():
        failure = await system.failure("m", "m", storage_key="", storage_params={"type": "pvc", "name": "well"})
    assert failure.code() is Code.INVALID_ARGUMENT
    assert "leads out of" in (failure.details() or "")


async def test_a_claim_that_is_not_mounted_gets_no_threads(system: System, tmp_path: Path) -> None:
    """A request may give any name."""
    (tmp_path / "claims").mkdir()
    before = threading.active_count()
    for number in range(20):
        failure = await system.failure("m", "m", storage_key="", storage_params={"type": "pvc", "name": f"made-up-{number}"})
        assert failure.code() is Code.INVALID_ARGUMENT and "is not mounted" in (failure.details() or "")
    assert threading.active_count() <= before


@pytest.mark.parametrize("settings", [{"PULL_THREADS": "2", "LOADTIME_TIMEOUT": "8000"}])
async def test_a_store_that_is_silent_in_the_middle_of_pulls_delays_no_other_load(system: System, config: Path) -> None:
    """It has all its requests for bytes."""
    weights = os.urandom(3_000_000)
    for number in range(4):
        system.put(f"m{number}", model=MODEL, weights=weights)
    with S3Proxy(system.s3.endpoint_url) as dead:
        dead.next(Fault(hang_after_bytes=1000), having="weights.bin", times=1000)
        (config / "dead").write_text(json.dumps(system.s3.storage_config(BUCKET) | {"endpoint_url": dead.endpoint_url}))
        loads = [asyncio.ensure_future(ended(system.load(f"dead{number}", f"m{number}", storage_key="dead"))) for number in range(4)]
        assert await asyncio.to_thread(dead.hanging.wait, 20)
        await until(lambda: waiting_for(system, "a free request to 127.0.0.1") >= 1, "both requests for bytes are taken")

        await everything_else_works(system)

        for load in loads:
            load.cancel()
    await system.settled()


@needs_mount
async def test_a_claim_that_answers_with_errors_is_at_fault_and_not_the_model(system: System, claim: SlowVolume, tmp_path: Path) -> None:
    """The driver of its mount has died: what is asked for is neither missing nor wrong, and may be there a minute later."""
    link = system.volume.repository_dir.parent / "by-link"
    link.symlink_to(tmp_path / "claims/hung/m")
    await system.load("placed", "m", **CLAIM)
    claim.die()
    for call in (
        system.load("a", "m", **CLAIM),
        system.load("c", "nothing-here", **CLAIM),
        system.load("b", str(link), disk_size_bytes=100, storage_key=""),
    ):
        with Timed():
            failure = await ended(call)
        assert failure is not None and failure.code() is Code.UNAVAILABLE, failure
        assert "hung" in (failure.details() or "") and "Transport endpoint is not connected" in (failure.details() or "")
    with Timed():
        predicted = await system.runtime.predictModelSize(predict_request("predicted", "python", "never loaded", **CLAIM), timeout=0.5)
        assert predicted.sizeInBytes == 1_000_000, "nothing is known"
        await system.load("placed", "m", **CLAIM)
    assert "placed" in system.triton.in_memory, "a model that serves is not given up because it cannot be compared"
    await everything_else_works(system)
    await system.unload("placed")


@needs_mount
async def test_a_secret_that_hangs_is_named_and_delays_no_unload(system: System, tmp_path: Path, config: Path) -> None:
    """Predictions are answered, what is served is unloaded, nothing of those who gave up is kept; and it heals by itself."""
    for name in ("serves", "m"):
        system.put(name, model=MODEL)
    await system.load("serves", "serves")
    behind = tmp_path / "secret"
    behind.mkdir()
    (behind / "s3").write_bytes((config / "s3").read_bytes())
    with SlowVolume(behind, config) as volume:
        volume.hang()
        loads = [asyncio.ensure_future(ended(system.load(f"m{number}", "m"))) for number in range(6)]
        await until(lambda: waiting_for(system, "the storage config to be read") == 6, "all loads wait for the secret")
        tasks = len(asyncio.all_tasks())
        for _ in range(10):
            predicted = await system.runtime.predictModelSize(predict_request("predicted", "python", "m"), timeout=0.5)
            assert predicted.sizeInBytes == 1_000_000
        await until(lambda: len(asyncio.all_tasks()) <= tasks, "predictions leave no task behind")
        with Timed():
            await system.unload("serves")
            await system.unload("m0")
        for failure in await asyncio.gather(*loads[1:]):
            assert failure is not None and failure.code() is Code.DEADLINE_EXCEEDED
            assert "waiting for the storage config to be read" in (failure.details() or "")
        volume.heal()
        await system.load("m", "m")
