"""
A long run: the adapter as a process between an S3 server and a Triton, and the curves of what it takes.

At the end of each of 60 stretches everything is at rest, and is counted: by the kernel from outside, objects from inside.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import socket
import stat
import statistics
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import grpc
from tritonclient.grpc import service_pb2 as v2
from tritonclient.grpc import service_pb2_grpc as v2_rpc

from adapter._pb import model_runtime_pb2 as spi
from adapter._pb import model_runtime_pb2_grpc as spi_rpc
from tests.fakes.triton import FakeTriton
from tests.real.adapter import AdapterProcess
from tests.real.models import affine
from tests.real.s3 import S3Server
from tests.real.triton import Triton
from tests.soak.curves import Bound, Curve
from tests.soak.inside import SOCKET
from tests.soak.traffic import IDS, PATHS, REFUSED, Traffic

BUCKET = "models"
RIGS = ("fake", "real")
WORKERS = {"fake": 3, "real": 8}
"""Cycles at a time. The real Triton needs a second for each unload of a python model."""
WARM_LOADS = 24
"""Of new content, before the first look: the cache is full then."""
STRETCHES = 60
FEWEST_STRETCHES = 15
LONG_RUN = 2_000
"""Cycles from which on latencies are judged closely."""
WEIGHTS_BYTES = (50_000, 100_000, 150_000)
CACHE = "2MiB"
"""Few enough that idle artifacts are evicted all the time."""
SETTLE_SECONDS = 30
BOUNDS: dict[str, tuple[str, Bound | None]] = {
    "memory (RSS)": ("MiB", Bound(6, 0.05)),
    "open descriptors": ("", Bound(6)),
    "threads": ("", Bound(3)),
    "tasks": ("", Bound(3)),
    "objects": ("", Bound(4_000, 0.02)),
    "entries kept": ("", Bound(100, 0.02)),
    "files and folders on the volume": ("", Bound(12, 0.25)),
    "bytes on the volume": ("MiB", Bound(1.5, 0.15)),
    "bytes of the journal": ("KiB", Bound(70)),
    "models in the registry": ("", Bound(0)),
    "entries of the journal": ("", Bound(3)),
    "artifacts known": ("", Bound(8, 0.25)),
    "clients of stores": ("", Bound(1)),
    "secrets remembered": ("", Bound(1)),
    "series of metrics": ("", Bound(60)),
    "a load": ("ms", Bound(0)),
    "an unload": ("ms", Bound(0)),
    "memory of Triton (RSS)": ("MiB", None),
}
"""
Curve → its unit, and how much the last third may have above the middle third.

Memory and objects: what the allocator and caches of the interpreter take meanwhile. Entries kept: of the collections that
the adapter's own objects have. The journal is written anew when it is twice as long as what it holds, and 64 KiB. Series: a
method that ends with another code begins some thirty, which a short run meets until its end. See `bounds` for what differs.
"""


def bounds(rig: str, cycles: int) -> dict[str, Bound | None]:
    """
    Of each curve of a run.

    Latencies are in ms. Interpreters that start beside each other wait for cores; in a short run one slow second is a third of it.
    """
    made = {name: bound for name, (_, bound) in BOUNDS.items()}
    if cycles < LONG_RUN:
        return made | {"a load": Bound(5_000), "an unload": Bound(5_000), "series of metrics": Bound(250)}
    return made | dict.fromkeys(("a load", "an unload"), Bound(50 if rig == "fake" else 600, 0.5))


@dataclass(frozen=True)
class Outcome:
    """Of a run."""

    curves: list[Curve]
    problems: list[str]
    """Calls that ended as no call should, and what was left at the end."""
    cycles: int
    seconds: float
    tried: dict[str, int]

    @property
    def note(self) -> str:
        """What ran, in words."""
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.tried.items(), key=lambda item: -item[1]))
        return f"{self.cycles} cycles in {self.seconds:.0f} s ({kinds})"


async def soaked(rig: str, cycles: int, folder: Path, *, seed: int = 1, tell: Callable[[str], None] = lambda _: None) -> Outcome:
    """Run `cycles` cycles in this folder. `rig`: which Triton. Raises PartError or CannotRunError when a part does not start."""
    stretches = max(FEWEST_STRETCHES, min(STRETCHES, cycles // 10))
    began = time.monotonic()
    async with _running(rig, folder, random.Random(seed), bounds(rig, cycles)) as run:
        await run.traffic.warm(WARM_LOADS, WORKERS[rig])
        done = 0
        for number in range(1, stretches + 1):
            wanted = cycles * number // stretches
            await run.traffic.stretch(wanted - done, WORKERS[rig])
            done = wanted
            if run.traffic.is_lost:
                break
            await run.look()
            if number % 6 == 0:
                memory = run.curves["memory (RSS)"].values[-1]
                tell(f"{done} of {cycles} cycles over the {rig} Triton, {time.monotonic() - began:.0f} s, {memory:.0f} MiB")
        problems = [*run.traffic.problems, *await run.left()]
        curves = [curve for curve in run.curves.values() if curve.values]
        return Outcome(curves, problems, done, time.monotonic() - began, dict(run.traffic.tried))


@dataclass
class _Run:
    traffic: Traffic
    adapter: AdapterProcess
    volume: Path
    counts: Path
    triton: v2_rpc.GRPCInferenceServiceStub
    real: Triton | None
    curves: dict[str, Curve]

    async def look(self) -> None:
        """Add a value to each curve, once what was cancelled has settled."""
        found = await asyncio.to_thread(self._counted)
        end = time.monotonic() + SETTLE_SECONDS
        while found["models in the registry"] and time.monotonic() < end:
            await asyncio.sleep(0.05)
            found = await asyncio.to_thread(self._counted)
        files = [status for path in self.volume.rglob("*") if (status := _status(path))]
        traffic = self.traffic
        found |= {
            "memory (RSS)": _rss_mib(self.adapter.pid),
            "open descriptors": len(os.listdir(f"/proc/{self.adapter.pid}/fd")),
            "threads": len(os.listdir(f"/proc/{self.adapter.pid}/task")),
            "files and folders on the volume": len(files),
            "bytes on the volume": sum({each.st_ino: each.st_size for each in files if stat.S_ISREG(each.st_mode)}.values()) / 2**20,
            "bytes of the journal": (self.volume / "_adapter" / "journal.jsonl").stat().st_size / 1024,
            "a load": self._milliseconds("a load", traffic.load_seconds),
            "an unload": self._milliseconds("an unload", traffic.unload_seconds),
        }
        if self.real is not None:
            found["memory of Triton (RSS)"] = _rss_mib(self.real.pid)
        traffic.load_seconds.clear()
        traffic.unload_seconds.clear()
        for name, value in found.items():
            self.curves[name].values.append(value)

    async def left(self) -> list[str]:
        """What is left although every model was unloaded."""
        if self.real is not None and not self.real.is_running:
            return [f"Triton ended by itself; its log ends with {self.real.log_path.read_text(errors='replace').splitlines()[-3:]}"]
        rows = (await self.triton.RepositoryIndex(v2.RepositoryIndexRequest())).models
        found = [f"Triton has {row.name} {row.state}" for row in rows]
        found += [f"{path.name} is in the folder of models" for path in (self.volume / "_triton_models").iterdir()]
        found += [
            f"{path.name} is in {path.parent.name}" for name in ("staging", "trash") for path in (self.volume / "_adapter" / name).iterdir()
        ]
        return found

    def _milliseconds(self, name: str, seconds: list[float]) -> float:
        """The median; where there is none, the one before."""
        return 1000 * statistics.median(seconds) if seconds else (self.curves[name].values or [0.0])[-1]

    def _counted(self) -> dict[str, float]:
        with socket.socket(socket.AF_UNIX) as asking:
            asking.settimeout(SETTLE_SECONDS)
            asking.connect(str(self.counts))
            parts = []
            while part := asking.recv(65536):
                parts.append(part)
        found: dict[str, float] = json.loads(b"".join(parts))
        return found


@asynccontextmanager
async def _running(rig: str, folder: Path, dice: random.Random, judged: dict[str, Bound | None]) -> AsyncIterator[_Run]:
    volume, config, counts = folder / "volume", folder / "config", folder / "counts.sock"
    config.mkdir(parents=True)
    (volume / "_triton_models").mkdir(parents=True)
    async with AsyncExitStack() as stack:
        s3 = stack.enter_context(S3Server(folder / "buckets"))

        def change(path: str) -> None:
            weights = {"1/weights.bin": dice.randbytes(dice.choice(WEIGHTS_BYTES))}
            s3.put_folder(BUCKET, path, dict(affine(1, dice.randrange(100))) | weights)

        for number in range(PATHS):
            change(f"path-{number}")
        s3.put_folder(BUCKET, REFUSED, dict(affine(1, 1)) | {"1/model.py": b"raise ValueError('a soak wants it so')\n"})
        (config / "s3").write_text(json.dumps(s3.storage_config(BUCKET)))
        real = None
        if rig == "fake":
            fake = await stack.enter_async_context(FakeTriton(volume / "_triton_models"))
            fake.default.load_seconds = fake.default.unload_seconds = 0.001
            for number in range(IDS):
                fake.behaviour(f"{REFUSED}-model-{number}").refuse = "a soak wants it so"
            target = fake.target
        else:
            real = stack.enter_context(
                Triton(volume / "_triton_models", extra_args=["--reuse-grpc-port=true"], log_path=folder / "triton.log")
            )
            target = real.grpc_target
        env = {
            "LOADING_CONCURRENCY": str(WORKERS[rig]), "TRITON_LOAD_THREADS": "8", "LOADTIME_TIMEOUT": "90000", "CACHE_MAX_BYTES": CACHE,
            SOCKET: str(counts), "LOG_LEVEL": "warning",
        }  # fmt: skip
        adapter = AdapterProcess(volume=volume, storage_config=config, triton_target=target, env=env, module="tests.soak.inside")
        stack.callback(adapter.kill)
        await asyncio.to_thread(adapter.start)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(adapter.channel_target))
        runtime = spi_rpc.ModelRuntimeStub(channel)
        while (await runtime.runtimeStatus(spi.RuntimeStatusRequest(), timeout=SETTLE_SECONDS)).status != spi.RuntimeStatusResponse.READY:
            await asyncio.sleep(0.1)
        to_triton = await stack.enter_async_context(grpc.aio.insecure_channel(target))
        traffic = Traffic(runtime, dice, change)
        curves = {name: Curve(name, unit, judged[name]) for name, (unit, _) in BOUNDS.items()}
        yield _Run(traffic, adapter, volume, counts, v2_rpc.GRPCInferenceServiceStub(to_triton), real, curves)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.lstat()
    except OSError:
        return None


def _rss_mib(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
