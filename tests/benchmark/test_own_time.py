"""
What the adapter itself costs: own time per load, idle memory, time to the first answer.

Prints ratios against limits or peers measured in the same run; asserts nothing about time. Results
also go to `tests/benchmark/results/own_time.json`. Run with `scripts/bench`.
"""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from adapter._pb import model_runtime_pb2 as spi
from adapter._pb import model_runtime_pb2_grpc as spi_rpc
from adapter.settings import Settings
from adapter.storage.secret.merging import StorageConfig
from adapter.triton.client import TritonClient
from adapter.wiring import build
from adapter.workers import Stop
from tests.fakes.memory_bucket import MemoryBucket
from tests.fakes.triton import FakeTriton
from tests.real.adapter import AdapterProcess
from tests.real.mesh import Mesh
from tests.real.s3 import S3Server
from tests.real.triton import Triton

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]
RESULTS = Path(__file__).parent / "results" / "own_time.json"
ROUNDS = 200
LIMIT_MS = 2.0
"""Own time per load that the design aims at."""
STARTS = 5
KEY = '{"storage_key": "s3", "model_type": "python"}'


def report(**figures: Any) -> None:
    """Print, and keep."""
    RESULTS.parent.mkdir(exist_ok=True)
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    RESULTS.write_text(json.dumps(known | figures, indent=2) + "\n")
    for name, value in figures.items():
        print(f"  {name:44} {value}")


@dataclass(frozen=True)
class OneBucket:
    """Every storage config leads to the same bucket in memory."""

    only: MemoryBucket

    def warm(self, config: StorageConfig, stop: Stop) -> None:
        """Nothing to make."""

    def bucket(self, config: StorageConfig, stop: Stop) -> MemoryBucket:
        """The bucket."""
        return self.only

    def close(self) -> None:
        """Nothing to close."""


@asynccontextmanager
async def bridge(folder: Path) -> AsyncIterator[tuple[Any, FakeTriton]]:
    """The whole adapter, with a store in memory and a Triton that loads in no time."""
    (folder / "s3").write_text('{"type": "s3", "bucket": "b"}')
    bucket = MemoryBucket()
    bucket.put("m/config.pbtxt", b'backend: "python"\n')
    bucket.put("m/1/model.py", b"class TritonPythonModel: pass\n")
    async with FakeTriton(folder / "_triton_models") as triton:
        environ = {
            "CONTAINER_MEM_REQ_BYTES": "2GiB", "ROOT_MODEL_DIR": str(folder), "STORAGE_CONFIG_DIR": str(folder), "METRICS_PORT": "0",
            "ADAPTER_ENDPOINT": f"unix:{folder}/a.sock", "RUNTIME_ENDPOINT": triton.target,
        }  # fmt: skip
        async with (
            build(Settings.from_env(environ), clients=OneBucket(bucket)) as adapter,
            grpc.aio.insecure_channel(adapter.spi.addresses[0]) as channel,
        ):
            yield spi_rpc.ModelRuntimeStub(channel), triton


async def test_own_time_per_load(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """
    A load from a store in memory into a fake Triton in this process: all of it is ours, or the fake's.

    Triton's part is measured apart: the same calls to the fake, without the adapter.
    """
    async with bridge(tmp_path) as (runtime, triton):
        request = spi.LoadModelRequest(modelId="m", modelType="python", modelPath="m", modelKey=KEY)
        loads, unloads = [], []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            await runtime.loadModel(request)
            loaded = time.perf_counter()
            await runtime.unloadModel(spi.UnloadModelRequest(modelId="m"))
            loads.append(loaded - started)
            unloads.append(time.perf_counter() - loaded)
        client = TritonClient(triton.target)
        (tmp_path / "_triton_models/bare/1").mkdir(parents=True)
        (tmp_path / "_triton_models/bare/1/model.py").touch()
        (tmp_path / "_triton_models/bare/config.pbtxt").write_text('backend: "python"\n')
        bare = []
        for _ in range(ROUNDS):
            started = time.perf_counter()
            await client.live(1)
            await client.load("bare")
            await client.reported_bytes("bare")
            bare.append(time.perf_counter() - started)
            await client.unload("bare")
        await client.close()
    load, unload, fake = (statistics.median(times) * 1000 for times in (loads, unloads, bare))
    with capsys.disabled():
        print()
        report(
            load_ms=round(load, 2),
            calls_to_fake_triton_ms=round(fake, 2),
            own_ms_per_load=round(load - fake, 2),
            own_over_limit=round((load - fake) / LIMIT_MS, 2),
            unload_ms=round(unload, 2),
        )
    assert len(loads) == ROUNDS


def test_idle_memory_and_start(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Resident memory of the idle process, and seconds from its start to the READY of runtimeStatus."""
    with ExitStack() as stack:
        s3 = stack.enter_context(S3Server())
        s3.put("models", "x", b"x")
        (tmp_path / "config").mkdir()
        (tmp_path / "config/s3").write_text(json.dumps(s3.storage_config("models")))
        starts, memory, bare = [], [], []
        volume = tmp_path / "volume"
        (volume / "_triton_models").mkdir(parents=True)
        triton = stack.enter_context(Triton(volume / "_triton_models"))
        for _ in range(STARTS):
            started = time.perf_counter()
            adapter = AdapterProcess(
                volume=volume, storage_config=tmp_path / "config", triton_target=triton.grpc_target, env={}, wait=False
            )
            with adapter, Mesh(adapter.channel_target, triton.grpc_target) as mesh:
                mesh.start()
                starts.append(time.perf_counter() - started)
                status = Path(f"/proc/{adapter.pid}/status").read_text()
                memory.append(int(status.partition("VmRSS:")[2].split()[0]) / 1024)
            bare.append(_bare_grpc_server_mib())
    with capsys.disabled():
        print()
        report(
            start_to_ready_s=round(statistics.median(starts), 2),
            idle_rss_mib=round(statistics.median(memory), 1),
            bare_grpc_server_rss_mib=round(statistics.median(bare), 1),
            idle_over_bare_grpc_server=round(statistics.median(memory) / statistics.median(bare), 2),
        )
    assert all(start > 0 for start in starts)


async def test_own_cpu_of_an_idle_adapter(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """CPU seconds per idle second, Triton's watch included."""
    async with bridge(tmp_path):
        before = resource.getrusage(resource.RUSAGE_SELF)
        await asyncio.sleep(5)
        after = resource.getrusage(resource.RUSAGE_SELF)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    with capsys.disabled():
        print()
        report(idle_cpu_percent=round(spent / 5 * 100, 2))
    assert spent >= 0


def _bare_grpc_server_mib() -> float:
    """A peer in the same run: a Python process that serves nothing but gRPC health."""
    import subprocess  # noqa: PLC0415
    import sys  # noqa: PLC0415

    program = (
        "import asyncio\nfrom grpc import aio\nfrom grpc_health.v1 import health, health_pb2_grpc\n"
        "async def main():\n server = aio.server()\n health_pb2_grpc.add_HealthServicer_to_server(health.aio.HealthServicer(), server)\n"
        " server.add_insecure_port('127.0.0.1:0')\n await server.start()\n await asyncio.sleep(0.5)\n"
        " print(open('/proc/self/status').read().partition('VmRSS:')[2].split()[0])\nasyncio.run(main())\n"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return int(answer.stdout) / 1024
