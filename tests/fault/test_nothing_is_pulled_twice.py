"""
What a load costs when the files were here before, counted at a proxy before the S3 server; also when something is wrong.

Triton is the fake one, for none of this needs an inference.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from adapter._pb import model_runtime_pb2 as spi
from adapter.telemetry.metrics import CACHE_EVICTIONS, CACHE_REQUESTS, REGISTRY
from adapter.wiring import Adapter
from tests.builders import load_request, zip_of
from tests.fakes.s3_proxy import Fault, S3Proxy
from tests.fakes.triton import FakeTriton
from tests.fault.conftest import BUCKET, MODEL, PART_BYTES, Hold, code_of, environ_of, running, until, until_ready
from tests.real.s3 import S3Server

CONFIG = b'backend: "python"\n'
SIZE = 3 * PART_BYTES + 17
TOTAL = len(MODEL) + len(CONFIG) + SIZE
LISTED = (1, 0, 0)
"""Listings, requests for objects, bytes of objects."""
TITLE = "what a load costs at the S3 server (tests/fault/test_nothing_is_pulled_twice.py)"
Show = Callable[..., None]


@dataclass
class Sidecar:
    """One process of the adapter."""

    adapter: Adapter
    runtime: Any
    proxy: S3Proxy

    async def load(self, model_id: str, path: str = "m", **key: Any) -> tuple[int, int, int]:
        """Load it. Returns how many listings were asked for, how many requests for objects, and how many bytes of objects came."""
        before = len(self.proxy.answers)
        await self.runtime.loadModel(load_request(model_id, "python", path, **key))
        answers = self.proxy.answers[before:]
        objects = [size_bytes for target, size_bytes in answers if "list-type" not in target]
        return len(answers) - len(objects), len(objects), sum(objects)

    async def unload(self, *model_ids: str) -> None:
        """They are gone when the calls are answered."""
        for model_id in model_ids:
            await self.runtime.unloadModel(spi.UnloadModelRequest(modelId=model_id))

    def placed(self, model_id: str) -> set[int]:
        """Inodes of what Triton sees."""
        return {path.stat().st_ino for path in (self.adapter.volume.repository_dir / model_id).rglob("*.bin")}

    @property
    def artifacts(self) -> list[Path]:
        """Folders of all of them."""
        return list(self.adapter.volume.artifacts_dir.iterdir())

    @property
    def held_bytes(self) -> int:
        """On the volume, each file once."""
        root = self.adapter.volume.repository_dir.parent
        found = {path.lstat().st_ino: path.lstat().st_size for path in root.rglob("*") if not path.is_dir()}
        return sum(found.values())


Pod = Callable[..., AbstractAsyncContextManager[Sidecar]]


@pytest.fixture
async def pod(tmp_path: Path, neighbours: tuple[FakeTriton, S3Proxy]) -> Pod:
    """Adapters over one volume, one after the other, beside one Triton."""
    triton, proxy = neighbours

    @asynccontextmanager
    async def start(**settings: str) -> AsyncIterator[Sidecar]:
        environ = environ_of(tmp_path, triton.target, **{"CACHE_MAX_BYTES": "1GiB", "LOADTIME_TIMEOUT": "12000"} | settings)
        async with running(environ) as (adapter, runtime):
            yield Sidecar(adapter, runtime, proxy)

    return start


def put(s3: S3Server, path: str = "m") -> bytes:
    """A model of three files. Returns its weights: other bytes each time."""
    weights = os.urandom(SIZE)
    s3.put_folder(BUCKET, path, {"1/model.py": MODEL, "1/weights.bin": weights, "config.pbtxt": CONFIG})
    return weights


def cost(show: Show, case: str, told: tuple[int, int, int]) -> tuple[int, int, int]:
    """One row of the table."""
    listings, reads, size_bytes = told
    show(TITLE, case=case, listings=listings, reads=reads, bytes=size_bytes)
    return told


def counted(name: str, **labels: str) -> float:
    """A metric as it is now."""
    return REGISTRY.get_sample_value(f"triton_adapter_{name}", labels) or 0.0


async def test_a_model_that_was_here_costs_one_listing(pod: Pod, s3: S3Server, shown: Show) -> None:
    """Loaded again after an unload, under a second id, by the next process, after a purge."""
    put(s3)
    hits, saved = counted("cache_requests_total", result="hit"), counted("cache_saved_bytes_total")
    async with pod() as sidecar:
        assert cost(shown, "cold", await sidecar.load("a")) == (1, 3, TOTAL)
        assert cost(shown, "again, loaded already", await sidecar.load("a")) == LISTED
        assert cost(shown, "a second id", await sidecar.load("b")) == LISTED
        assert len(sidecar.artifacts) == 1
        assert sidecar.placed("a") == sidecar.placed("b")
        await sidecar.unload("a", "b")
        assert cost(shown, "reload after an unload", await sidecar.load("a")) == LISTED
    async with pod() as sidecar:
        assert cost(shown, "equal load after a restart", await sidecar.load("a")) == LISTED
        await sidecar.unload("a")
        assert cost(shown, "reload after a restart", await sidecar.load("a")) == LISTED
        await until_ready(sidecar.runtime)
        assert cost(shown, "reload after a purge", await sidecar.load("a")) == LISTED
        told = sum(counted("volume_bytes", kind=kind) for kind in ("placed", "idle", "staging", "trash"))
        assert abs(told - sidecar.held_bytes) < 32_768
    assert counted("cache_requests_total", result="hit") == hits + 4
    assert counted("cache_saved_bytes_total") == saved + 4 * TOTAL


async def test_only_what_has_changed_is_pulled(pod: Pod, s3: S3Server, shown: Show) -> None:
    put(s3)
    async with pod() as sidecar:
        await sidecar.load("a")
        s3.put(BUCKET, "m/1/model.py", MODEL + b"  # changed")

        assert cost(shown, "one of three objects changed", await sidecar.load("a"))[1:] == (1, len(MODEL) + 11)

        assert (sidecar.adapter.volume.repository_dir / "a/1/model.py").read_bytes() == MODEL + b"  # changed"


async def test_who_may_list_and_not_read_gets_nothing(pod: Pod, s3: S3Server, config: Path) -> None:
    """Another storage key, whose credentials may list the bucket; also of an archive that its owner has unpacked."""
    put(s3)
    s3.put(BUCKET, "packed.zip", zip_of([("1/model.py", MODEL), ("config.pbtxt", CONFIG)]))
    unpacked = {"storage_params": {"unpack": "true"}}
    async with pod() as sidecar:
        (config / "other").write_text((config / "s3").read_text())
        for name, path, key, read in (("a", "m", {}, "/m/"), ("c", "packed.zip", unpacked, "/packed.zip")):
            await sidecar.load(name, path, **key)
            sidecar.proxy.next(Fault(status=403, code="AccessDenied"), times=1000, having=read)
            assert await code_of(sidecar.load("b", path, storage_key="other", **key)) is grpc.StatusCode.PERMISSION_DENIED
            sidecar.proxy.heal()
        before = len(sidecar.artifacts)
        await sidecar.load("b", storage_key="other")
        assert len(sidecar.artifacts) == before + 1, "a storage key has a copy of its own"


async def test_no_other_user_may_read_what_was_asked(pod: Pod, s3: S3Server, config: Path) -> None:
    """Journal and records are ours alone, and hold no secret."""
    put(s3)
    own = json.loads((config / "s3").read_text())
    async with pod() as sidecar:
        await sidecar.load("a")
        await sidecar.load("b", storage_params=own)
        journal = sidecar.adapter.volume.cache_dir / "journal.jsonl"
        files = [journal, *(entry / "meta.json" for entry in sidecar.artifacts)]
        assert len(files) == 2
        for file in files:
            assert file.stat().st_mode & 0o777 == 0o600
            assert own["secret_access_key"] not in file.read_text()
        first = json.loads(journal.read_text().splitlines()[0])
        assert first["format"] == 1
        assert first["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def damage_to(entry: Path, damage: str) -> None:
    """Spoil an artifact."""
    (weights,), meta = entry.rglob("weights.bin"), entry / "meta.json"
    match damage:
        case "other bytes":
            weights.write_bytes(os.urandom(SIZE))
        case "longer":
            weights.write_bytes(weights.read_bytes() + b"x")
        case "another time":
            os.utime(weights, ns=(1, 1))
        case "a link":
            weights.unlink()
            weights.symlink_to("/etc/hostname")
        case "gone":
            weights.unlink()
        case "no meta":
            meta.unlink()
        case "a meta of garbage":
            meta.write_bytes(os.urandom(4096))
        case "another format":
            found = json.loads(meta.read_text())
            meta.write_text(json.dumps(found | {"format": found["format"] - 1}))
        case "another boot":
            found = json.loads(meta.read_text())
            meta.write_text(json.dumps(found | {"boot_id": "another"}))


@pytest.mark.parametrize("damage", ["other bytes", "longer", "another time", "a link", "gone"])
async def test_a_damaged_artifact_is_pulled_again(pod: Pod, s3: S3Server, shown: Show, damage: str) -> None:
    """It was written to: what Triton gets is what the store has."""
    weights = put(s3)
    async with pod() as sidecar:
        await sidecar.load("a")
        await sidecar.unload("a")
        damage_to(sidecar.artifacts[0], damage)

        assert cost(shown, f"damaged entry: {damage}", await sidecar.load("a")) == (1, 3, TOTAL)

        (placed,) = (sidecar.adapter.volume.repository_dir / "a").rglob("*.bin")
        assert placed.read_bytes() == weights


@pytest.mark.parametrize("damage", ["no meta", "a meta of garbage", "another format", "another boot"])
async def test_what_is_no_artifact_of_ours_goes_at_the_start(pod: Pod, s3: S3Server, shown: Show, damage: str) -> None:
    put(s3)
    async with pod() as sidecar:
        await sidecar.load("a")
        await sidecar.unload("a")
        damage_to(sidecar.artifacts[0], damage)
    async with pod() as sidecar:
        assert not sidecar.artifacts
        assert cost(shown, f"damaged entry: {damage}", await sidecar.load("a")) == (1, 3, TOTAL)


@pytest.mark.parametrize("fault", [Fault(status=503, code="SlowDown"), Fault(hang_after_bytes=-1)], ids=["503", "no answer"])
async def test_storage_that_is_away_does_not_keep_a_confirmed_model_away(pod: Pod, s3: S3Server, shown: Show, fault: Fault) -> None:
    """A third of the budget, then the files that are there; a stranger's key gets nothing, and neither does another path."""
    put(s3)
    async with pod(LOADTIME_TIMEOUT="4000") as sidecar:
        await sidecar.load("a")
        await sidecar.unload("a")
        sidecar.proxy.next(fault, times=1000)
        stale = CACHE_REQUESTS.labels("stale")._value.get()
        told = await sidecar.load("a")
        assert cost(shown, f"storage is away ({fault.status or 'no answer'}): stale", told) == (0, 0, 0)
        assert CACHE_REQUESTS.labels("stale")._value.get() == stale + 1
        stranger = {"access_key_id": "stranger", "secret_access_key": "x"}
        for failed in await asyncio.gather(
            sidecar.load("x", storage_params=stranger), sidecar.load("y", "m-other"), return_exceptions=True
        ):
            assert isinstance(failed, grpc.aio.AioRpcError)
            assert failed.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
        sidecar.proxy.heal()
        await sidecar.unload("a")
        assert await sidecar.load("a") == LISTED


async def test_a_refused_listing_gives_nothing(pod: Pod, s3: S3Server) -> None:
    """401, 403 and 404 by the server, with the files on the volume: whether access was withdrawn or never given."""
    put(s3)
    async with pod() as sidecar:
        await sidecar.load("placed")
        stale = CACHE_REQUESTS.labels("stale")._value.get()
        for status, code in ((401, "InvalidAccessKeyId"), (403, "AccessDenied"), (404, "NoSuchBucket")):
            sidecar.proxy.next(Fault(status=status, code=code), times=1000)
            expected = grpc.StatusCode.NOT_FOUND if status == 404 else grpc.StatusCode.PERMISSION_DENIED
            assert await code_of(sidecar.load("a")) is expected
            sidecar.proxy.heal()
        stranger = sidecar.load("a", storage_params={"access_key_id": "stranger", "secret_access_key": "wrong-secret"})
        assert await code_of(stranger) is grpc.StatusCode.PERMISSION_DENIED
        assert CACHE_REQUESTS.labels("stale")._value.get() == stale
        assert (await sidecar.load("a"))[:2] == (1, 1), "whom storage has refused shows again that it may read"


async def test_a_refused_read_gives_nothing_while_the_store_is_away(pod: Pod, s3: S3Server) -> None:
    """The first version was read. Of the second one, the store gives a listing and no byte: what it said last holds."""
    put(s3)
    async with pod(LOADTIME_TIMEOUT="4000") as sidecar:
        await sidecar.load("a")
        await sidecar.unload("a")
        put(s3)
        sidecar.proxy.next(Fault(status=403, code="AccessDenied"), times=1000, having="/m/")
        assert await code_of(sidecar.load("a")) is grpc.StatusCode.PERMISSION_DENIED
        sidecar.proxy.heal()
        sidecar.proxy.next(Fault(status=503, code="SlowDown"), times=1000)
        with pytest.raises(grpc.aio.AioRpcError, match="SlowDown") as failed:
            await sidecar.load("a")
        assert failed.value.code() is grpc.StatusCode.UNAVAILABLE
    async with pod(LOADTIME_TIMEOUT="4000") as sidecar:
        with pytest.raises(grpc.aio.AioRpcError, match="SlowDown"):
            await sidecar.load("a")


async def test_a_budget_under_pressure_keeps_what_was_used_last(pod: Pod, s3: S3Server, shown: Show) -> None:
    """The budget holds two models and a half: the third one makes the oldest idle one go, and what is placed stays."""
    for path in ("m", "n", "o"):
        put(s3, path)
    async with pod(CACHE_MAX_BYTES=str(TOTAL * 5 // 2)) as sidecar:
        evicted = CACHE_EVICTIONS._value.get()
        assert (await sidecar.load("placed", "m"))[2] == TOTAL
        for path in ("n", "o"):
            assert (await sidecar.load("x", path))[2] == TOTAL
            await sidecar.unload("x")
            assert sidecar.held_bytes <= TOTAL * 5 // 2
        assert CACHE_EVICTIONS._value.get() == evicted + 1
        assert await sidecar.load("y", "m") == LISTED
        assert cost(shown, "budget of 2.5 models, one placed: the newest of 2 idle", await sidecar.load("x", "o")) == LISTED
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await sidecar.load("z", "n")
        assert failed.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "CACHE_MAX_BYTES" in str(failed.value.details())
        await sidecar.unload("x")
        oldest = cost(shown, "budget of 2.5 models, one placed: the oldest of 2 idle", await sidecar.load("z", "n"))
        assert oldest[2] == TOTAL
        assert sidecar.held_bytes <= TOTAL * 5 // 2


async def test_without_a_cache_nothing_idle_is_kept(pod: Pod, s3: S3Server) -> None:
    """CACHE_MAX_BYTES=0, also for what an earlier process has left."""
    put(s3)
    async with pod() as sidecar:
        await sidecar.load("a")
        await sidecar.unload("a")
        assert len(sidecar.artifacts) == 1
    async with pod(CACHE_MAX_BYTES="0") as sidecar:
        await until(lambda: not sidecar.artifacts, "nothing idle")
        await sidecar.load("a")
        await sidecar.load("b")
        assert len(sidecar.artifacts) <= 1
        await sidecar.unload("a", "b")
        await until(lambda: not sidecar.artifacts, "nothing idle")


async def test_ten_loads_at_once_share_one_pull(pod: Pod, s3: S3Server) -> None:
    """Half of them are cancelled while it runs: the others get the files, and no byte is asked for again."""
    put(s3)
    async with pod() as sidecar:
        hold = Hold()
        sidecar.proxy.next(Fault(first=hold), having="weights.bin")
        loads = [asyncio.create_task(sidecar.load(f"m{number}")) for number in range(10)]
        await hold.reached()
        await until(lambda: all("pull" in of.phases() for of in sidecar.adapter.lifecycle.registry.operations()), "each is listed")
        for load in loads[::2]:
            load.cancel()
        await asyncio.wait(loads[::2])
        hold.release()
        await asyncio.gather(*loads[1::2])

        assert sum(size_bytes for target, size_bytes in sidecar.proxy.answers if "weights.bin" in target) == SIZE
        assert len({inode for number in range(1, 10, 2) for inode in sidecar.placed(f"m{number}")}) == 1
        assert len(sidecar.artifacts) == 1
