"""
The adapter's own time per load, with few and many models known, beside a bare round trip of gRPC in the same run.

A store in memory, a Triton that loads in no time, all in this process: the calls to that Triton that such a load makes are counted
there, made without the adapter, and taken off, so what is left is the adapter's, and its gRPC's.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from adapter._pb import model_runtime_pb2 as spi
from adapter._pb import model_runtime_pb2_grpc as spi_rpc
from adapter.settings import Settings
from adapter.telemetry import logs
from adapter.triton.client import TritonClient
from adapter.wiring import build
from tests.benchmark.amounts import Amounts
from tests.benchmark.report import OURS, Finding
from tests.fakes.memory_bucket import MemoryBucket
from tests.fakes.triton import FakeTriton
from tests.real.models import write

ROUNDS, BLOCKS, WARM = 200, 5, 10
SETTLED = 300
"""Loads before the first that counts: the same for a rig with few models as for one with many."""
AT_ONCE = 8
GOAL_TRIPS = 4.0
"""Own time of a load, in bare round trips."""
KEY = '{"storage_key": "s3", "model_type": "python"}'


ASKED: Mapping[str, Callable[[TritonClient], Awaitable[object]]] = {
    "ServerLive": lambda client: client.live(1),
    "RepositoryModelLoad": lambda client: client.load("bare"),
    "ModelStatistics": lambda client: client.reported_bytes("bare"),
}
"""What a load asks of Triton, in this order, as the adapter's client asks it."""


@dataclass(frozen=True)
class OneBucket:
    """Every storage config leads to the same bucket in memory."""

    only: MemoryBucket

    async def bucket(self, config: object) -> MemoryBucket:
        """The bucket."""
        return self.only


@dataclass(frozen=True)
class Bridge:
    """A running adapter between a caller and a Triton."""

    runtime: Any
    triton: FakeTriton
    folder: Path

    async def load(self, model_id: str) -> float:
        """Seconds."""
        began = time.perf_counter()
        await self.runtime.loadModel(spi.LoadModelRequest(modelId=model_id, modelType="python", modelPath="m", modelKey=KEY))
        return time.perf_counter() - began

    async def unload(self, model_id: str) -> None:
        """Away again."""
        await self.runtime.unloadModel(spi.UnloadModelRequest(modelId=model_id))


@asynccontextmanager
async def bridge() -> AsyncIterator[Bridge]:
    """The whole adapter, with a store in memory and a Triton that loads in no time."""
    with tempfile.TemporaryDirectory(prefix="bench-") as made:
        folder = Path(made)
        (folder / "s3").write_text('{"type": "s3", "bucket": "b"}')
        bucket = MemoryBucket({"m/config.pbtxt": b'backend: "python"\n', "m/1/model.py": b"class TritonPythonModel: pass\n"})
        async with FakeTriton(folder / "_triton_models") as triton:
            environ = {
                "CONTAINER_MEM_REQ_BYTES": "64GiB", "ROOT_MODEL_DIR": made, "STORAGE_CONFIG_DIR": made, "METRICS_PORT": "0",
                "ADAPTER_ENDPOINT": f"unix:{folder}/a.sock", "RUNTIME_ENDPOINT": triton.target, "LOADING_CONCURRENCY": str(AT_ONCE),
            }  # fmt: skip
            async with (
                build(Settings.from_env(environ), clients=OneBucket(bucket).bucket),
                grpc.aio.insecure_channel(f"unix:{folder}/a.sock") as channel,
            ):
                yield Bridge(spi_rpc.ModelRuntimeStub(channel), triton, folder)


def lifecycle(amounts: Amounts) -> Finding:
    """Own time of a load with few and many models known."""
    finding = Finding("lifecycle", "own time of a load (a store and a Triton that take none)")
    with open(os.devnull, "w") as nowhere:
        logs.configure(Settings.from_env({"CONTAINER_MEM_REQ_BYTES": "1GiB", "LOG_FORMAT": "json"}).telemetry, nowhere)  # as in a pod
        asyncio.run(_measure(finding, amounts.known))
    return finding


async def _measure(finding: Finding, known: tuple[int, ...]) -> None:
    async with bridge() as rig:
        for warm in range(SETTLED):
            await rig.load(f"w{warm}")
            await rig.unload(f"w{warm}")
        before = 0
        for count in sorted(known):
            await _fill(rig, before, count)
            before = count
            trips, fake, loads = await _interleaved(rig)
            trip = statistics.median(trips)
            own = statistics.median((load - statistics.median(fake)) / trip for load in loads)
            case = f"own time of a load, {count} models known"
            for client, trips_of in ((OURS, own), ("goal", GOAL_TRIPS)):
                finding.add(case, client, trips_of, "round trips")
            finding.notes.append(
                f"{count} models known: a bare round trip takes {trip * 1000:.2f} ms, a load {statistics.median(loads) * 1000:.1f} ms, "
                f"Triton's part of it {statistics.median(fake) * 1000:.1f} ms."
            )


async def _fill(rig: Bridge, first: int, count: int) -> None:
    async def some(start: int) -> None:
        for number in range(start, count, AT_ONCE):
            await rig.load(f"k{number}")

    await asyncio.gather(*(some(first + each) for each in range(AT_ONCE)))


async def _asked_of_triton(rig: Bridge) -> list[str]:
    """
    The calls to Triton of a load that follows another, in their order.

    As most of the loads make them: the watch of Triton, which asks now and then, is no part of a load.
    """
    seen: Counter[tuple[str, ...]] = Counter()
    for _ in range(WARM):
        before = rig.triton.calls.copy()
        await rig.load("x")
        seen[tuple(sorted((rig.triton.calls - before).elements()))] += 1
        await rig.unload("x")
    [(usual, _)] = seen.most_common(1)
    return sorted(usual, key=list(ASKED).index)


async def _bare(rig: Bridge, asked: list[str], times: int) -> list[float]:
    """The same calls to Triton without the adapter, for a model that it does not know."""
    write({"config.pbtxt": b'backend: "python"\n', "1/model.py": b""}, rig.folder / "_triton_models/bare")
    client = TritonClient(rig.triton.target)
    found = []
    for number in range(WARM + times):
        began = time.perf_counter()
        for name in asked:
            await ASKED[name](client)
        found += [time.perf_counter() - began] if number >= WARM else []
        await client.unload("bare")
    await client.close()
    return found


async def _round_trips(times: int) -> list[float]:
    """gRPC's own cost: calls to a server that does nothing, both in this process."""

    async def answer(request: bytes, _context: object) -> bytes:
        return request

    found = []
    server = grpc.aio.server()
    handler: Any = grpc.unary_unary_rpc_method_handler(answer)
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("bench.Echo", {"Say": handler}),))
    with tempfile.TemporaryDirectory() as folder:
        server.add_insecure_port(f"unix:{folder}/s.sock")
        await server.start()
        async with grpc.aio.insecure_channel(f"unix:{folder}/s.sock") as channel:
            call: Any = channel.unary_unary("/bench.Echo/Say")
            for number in range(WARM + times):
                began = time.perf_counter()
                await call(b"x" * 100)
                found += [time.perf_counter() - began] if number >= WARM else []
        await server.stop(0)
    return found


async def _interleaved(rig: Bridge) -> tuple[list[float], list[float], list[float]]:
    """Seconds of round trips, of Triton's part, and of loads, in turns."""
    trips: list[float] = []
    fake: list[float] = []
    loads: list[float] = []
    asked = await _asked_of_triton(rig)
    for _ in range(BLOCKS):
        trips += await _round_trips(ROUNDS // BLOCKS)
        fake += await _bare(rig, asked, ROUNDS // BLOCKS)
        names = [f"x{number}" for number in range(ROUNDS // BLOCKS)]
        loads += [await rig.load(name) for name in names]  # by themselves, as the others: the fake's index takes long, in this process
        for name in names:
            await rig.unload(name)
    return trips, fake, loads
