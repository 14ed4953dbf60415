"""
A random mix of calls, kills of the adapter in the middle of it, and what must be true afterwards.

`Trial` is ModelMesh, its users and the executioner in one: it knows which models were answered LOADED, looks all the time
whether Triton serves them, and looks at each new process before it goes on.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import time
import urllib.request
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as v2
from tritonclient.grpc import service_pb2_grpc as v2_rpc

from adapter._pb import model_runtime_pb2 as spi
from adapter._pb import model_runtime_pb2_grpc as spi_rpc
from tests.builders import load_request
from tests.fakes.s3_proxy import Fault, S3Proxy
from tests.fault.conftest import BUCKET, OWN_FILES, until
from tests.real.adapter import AdapterProcess
from tests.real.models import text_statistics
from tests.real.s3 import S3Server

IDS = tuple(f"model-{number}" for number in range(8))
PATHS = tuple(f"path-{number}" for number in range(5))
WEIGHTS_BYTES = (1000, 200_000, 3_000_000)
BUDGET_MIB = 24
"""Of the volume: idle artifacts are evicted all the time."""
MOST_CALLS = 6
"""Under way at one time."""
LIFE_SECONDS = 0.8
"""Longest life of a process after it has been looked at."""
CHECKED_LOADS = 2
"""So many equal loads are looked at after each kill."""
UNSETTLED = ("pulling", "loading", "unloading", "failed")
CALM_SECONDS = 60
JUST_NOW_SECONDS = 0.2


@dataclass(frozen=True)
class Told:
    """A model that was answered LOADED, and that nobody has touched since."""

    path: str
    version: int
    size_bytes: int


@dataclass
class Row:
    """Of the table: what was under way at the kill."""

    tried: int = 0
    survived: int = 0
    lost: int = 0


@dataclass
class Trial:
    """One volume, one Triton, one adapter after the other, and what ModelMesh was told."""

    random: random.Random
    adapter: AdapterProcess
    proxy: S3Proxy
    s3: S3Server
    volume: Path
    triton: v2_rpc.GRPCInferenceServiceStub
    orders: Callable[[], int]
    """How many loads and unloads Triton was sent so far."""
    runtime: Any = None
    told: dict[str, Told] = field(default_factory=dict)
    versions: Counter[str] = field(default_factory=Counter)
    epochs: Counter[str] = field(default_factory=Counter)
    """Of each id: how many calls came that may change what it holds."""
    calls: dict[asyncio.Task[None], str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    table: dict[str, Row] = field(default_factory=lambda: defaultdict(Row))
    frozen: set[str] = field(default_factory=set)
    """Paths whose content this life must not change any more."""
    changed: set[str] = field(default_factory=set)
    """Paths whose content this life has changed."""
    asked: set[str] = field(default_factory=set)
    """Ids that this life was asked to load."""
    unjudged: list[str] = field(default_factory=list)
    """What was under way at the kills since a process was looked at last."""
    cancelled_at: float = -math.inf
    """When a caller went last."""

    def __post_init__(self) -> None:
        for path in PATHS:
            self.change(path)

    # ---- what ModelMesh and its users do

    def change(self, path: str) -> None:
        """The content of the store is replaced: the weights, never the program."""
        self.versions[path] += 1
        self.changed.add(path)
        size = self.random.choice(WEIGHTS_BYTES)
        weights = f"{path} {self.versions[path]}".encode().ljust(size, b".")
        self.s3.put_folder(BUCKET, path, dict(text_statistics()) | {"1/weights.bin": weights})

    async def load(self, model_id: str, path: str) -> None:
        """Told stays true over an equal load, whatever becomes of the call; any other load puts it into doubt."""
        told, version, is_equal = self.told.get(model_id), self.versions[path], self.is_equal(model_id, path)
        if not is_equal:
            self.told.pop(model_id, None)
            self.epochs[model_id] += 1
        epoch = self.epochs[model_id]
        is_alone = model_id not in self.asked  # else it may join a load that has listed an earlier content
        self.asked.add(model_id)
        answer = await self.runtime.loadModel(load_request(model_id, "python", path))
        if self.epochs[model_id] != epoch or self.versions[path] != version or (path in self.changed and not is_alone):
            return
        if told is not None and is_equal and answer.sizeInBytes != told.size_bytes:
            self.problems.append(f"{model_id}: {answer.sizeInBytes} bytes after {told.size_bytes}")
        self.told[model_id] = Told(path, version, answer.sizeInBytes)

    async def unload(self, model_id: str) -> None:
        self.told.pop(model_id, None)
        self.epochs[model_id] += 1
        await self.runtime.unloadModel(spi.UnloadModelRequest(modelId=model_id))

    def act(self) -> None:
        """One thing that happens."""
        model_id, path = self.random.choice(IDS), self.random.choice(PATHS)
        told = self.told.get(model_id)
        choice = self.random.random()
        if choice < 0.1:
            self.change_if_free(path)
        elif choice < 0.25 and self.calls:
            self.random.choice(list(self.calls)).cancel()
            self.cancelled_at = time.monotonic()
        elif choice < 0.45:
            self.begin("an unload", self.unload(model_id))
        elif choice < 0.6 and told is not None:
            self.begin_load(model_id, told.path)
        elif choice < 0.7 and told is not None:
            self.change_if_free(told.path)
            self.begin_load(model_id, told.path)
        else:
            self.begin_load(model_id, path)
        if self.random.random() < 0.2:
            self.slow_down(path)

    def slow_down(self, path: str) -> None:
        """The next request for it takes its time."""
        self.proxy.next(Fault(first=partial(time.sleep, self.random.choice((0.05, 0.3)))), having=path)

    def begin_load(self, model_id: str, path: str) -> None:
        kind = "a load" if model_id not in self.told else "an equal load" if self.is_equal(model_id, path) else "a reload of other content"
        if kind == "an equal load":
            self.frozen.add(path)
            if self.random.random() < 0.5:
                self.slow_down(path)
        self.begin(kind, self.load(model_id, path))

    def change_if_free(self, path: str) -> None:
        """Not under an equal load, nor just after its caller has gone: nobody could tell which content it met."""
        if path not in self.frozen:
            self.change(path)

    def is_equal(self, model_id: str, path: str) -> bool:
        told = self.told.get(model_id)
        return told is not None and (told.path, told.version) == (path, self.versions[path])

    def begin(self, kind: str, call: Any) -> None:
        task = asyncio.create_task(self.answered(call))
        self.calls[task] = kind
        task.add_done_callback(self.calls.pop)

    async def answered(self, call: Any) -> None:
        try:
            await call
        except grpc.aio.AioRpcError as error:
            if error.code() in (grpc.StatusCode.INTERNAL, grpc.StatusCode.UNKNOWN):
                self.problems.append(f"a defect: {error.details()}")

    # ---- what the world sees

    async def serves(self, model_id: str) -> bool:
        return bool((await self.triton.ModelReady(v2.ModelReadyRequest(name=model_id))).ready)

    async def rows(self) -> dict[str, str]:
        return {row.name: row.state for row in (await self.triton.RepositoryIndex(v2.RepositoryIndexRequest())).models}

    async def watch(self) -> None:
        """All the time, whether an adapter lives or not: who was told LOADED is served."""
        while True:
            for model_id, told in list(self.told.items()):
                if not await self.serves(model_id) and self.told.get(model_id) is told:
                    self.problems.append(f"{model_id} has stopped to serve")
                    del self.told[model_id]
            await asyncio.sleep(0.02)

    def unfinished(self) -> list[str]:
        """What lies in staging and trash."""
        folders = (self.volume / "_adapter" / name for name in ("staging", "trash"))
        return [str(path.relative_to(self.volume)) for folder in folders if folder.is_dir() for path in folder.iterdir()]

    async def gauge(self, name: str, label: str) -> dict[str, float]:
        """A metric of the adapter by its label; empty while it does not answer."""
        prefix = f'triton_adapter_{name}{{{label}="'
        try:
            text = await asyncio.to_thread(
                lambda: urllib.request.urlopen(f"{self.adapter.metrics_url}/metrics", timeout=10).read().decode()
            )
        except OSError:
            return {}
        lines = [line.removeprefix(prefix).split('"} ') for line in text.splitlines() if line.startswith(prefix)]
        return {value: float(number) for value, number in lines}

    async def unsettled(self) -> list[str]:
        """What is not yet as it should be when nothing is under way."""
        found = [f"in {path}" for path in self.unfinished()]
        found += [f"Triton has {name} {state}" for name, state in (await self.rows()).items() if state != "READY"]
        models, drift = await self.gauge("models", "state"), await self.gauge("inventory_drift", "kind")
        found += [f"{models[state]:g} models are {state}" for state in UNSETTLED if models.get(state)]
        found += [f"drift {kind}: {count:g}" for kind, count in drift.items() if count]
        return found if models and len(drift) == 4 else [*found, "no metrics"]

    # ---- lives and deaths

    async def live(self) -> None:
        """A process takes over, is looked at, works, and is killed; or it is killed before it has taken over."""
        before = len(self.problems)
        self.adapter.launch()
        if self.random.random() < 0.2:
            await asyncio.sleep(self.random.uniform(0.05, 1.2))
            return await self.kill("a start or a take-over")
        async with self.connected():
            await self.examine()
            self.judge(before)
            end = time.monotonic() + self.random.uniform(0, LIFE_SECONDS)
            while time.monotonic() < end:
                if len(self.calls) < MOST_CALLS:
                    self.act()
                await asyncio.sleep(self.random.uniform(0, 0.06))
            await self.kill(*set(self.calls.values()) or {"nothing"})
            await asyncio.gather(*self.calls, return_exceptions=True)
        return None

    async def kill(self, *kinds: str) -> None:
        """Afterwards the volume and Triton still show what it was doing."""
        self.adapter.kill()
        states = set((await self.rows()).values())
        faults = set(kinds)
        faults |= {f"… files in {path.split('/')[1]}" for path in self.unfinished()}
        faults |= {f"… Triton {state}" for state in states & {"LOADING", "UNLOADING"}}
        if time.monotonic() - self.cancelled_at < JUST_NOW_SECONDS:
            faults.add("a load or unload whose caller has just gone")
        self.unjudged += faults
        for kept in (self.frozen, self.changed, self.asked):
            kept.clear()
        for fault in faults:
            self.table[fault].tried += 1

    def judge(self, before: int) -> None:
        """How the kills since the last look have ended."""
        lost = sum("stopped to serve" in problem for problem in self.problems[before:])
        for fault in self.unjudged:
            self.table[fault].survived += len(self.problems) == before
            self.table[fault].lost += lost
        self.unjudged.clear()

    @asynccontextmanager
    async def connected(self) -> AsyncIterator[None]:
        async with grpc.aio.insecure_channel(self.adapter.channel_target, options=[("grpc.initial_reconnect_backoff_ms", 50)]) as channel:
            self.runtime = spi_rpc.ModelRuntimeStub(channel)
            yield

    async def examine(self) -> None:
        """A process that has taken over: everything is finished or undone, nobody is lost, nobody is unknown."""
        await self.runtime.unloadModel(spi.UnloadModelRequest(modelId="nobody"), wait_for_ready=True, timeout=CALM_SECONDS)  # the gate
        end = time.monotonic() + CALM_SECONDS
        while (unsettled := await self.unsettled()) and time.monotonic() < end:
            await asyncio.sleep(0.02)
        self.problems += unsettled
        for name in {*await self.rows(), *(path.name for path in (self.volume / "_triton_models").iterdir())}:
            size = await self.size_of(name)
            if size is None:
                self.problems.append(f"{name} is in Triton, and the adapter does not know it")
            elif name in self.told and self.told[name].size_bytes != size:
                self.problems.append(f"{name} had {self.told[name].size_bytes} bytes, and now {size}")
        if (held := self.held_bytes()) > BUDGET_MIB << 20:
            self.problems.append(f"{held} bytes on the volume, with a budget of {BUDGET_MIB} MiB")
        unchanged = [name for name, told in self.told.items() if told.version == self.versions[told.path]]
        self.proxy.heal()
        for name in self.random.sample(unchanged, min(CHECKED_LOADS, len(unchanged))):
            await self.check_equal_load(name)

    def held_bytes(self) -> int:
        """Of all files on the volume, each once however many names it has."""
        found = (Path(folder, name).lstat() for folder, _, names in os.walk(self.volume) for name in names)
        return sum({(status.st_dev, status.st_ino): status.st_size for status in found}.values())

    async def size_of(self, model_id: str) -> int | None:
        try:
            return int((await self.runtime.modelSize(spi.ModelSizeRequest(modelId=model_id))).sizeInBytes)
        except grpc.aio.AioRpcError:
            return None

    async def check_equal_load(self, model_id: str) -> None:
        """One listing, no bytes, no order to Triton."""
        requests, orders = len(self.proxy.requests), self.orders()
        await self.load(model_id, self.told[model_id].path)
        asked = self.proxy.requests[requests:]
        if [request for request in asked if "list-type=2" not in request] or len(asked) != 1:
            self.problems.append(f"an equal load of {model_id} asked storage: {asked}")
        if self.orders() != orders:
            self.problems.append(f"an equal load of {model_id} gave Triton something to do")

    async def end(self) -> None:
        """All is unloaded: nothing is left but the cache."""
        self.adapter.launch()
        before = len(self.problems)
        async with self.connected():
            await self.examine()
            self.judge(before)
            for model_id in IDS:
                await self.unload(model_id)
            await until(lambda: not self.unfinished(), "staging and trash are empty")
        assert await self.rows() == {}
        assert not list((self.volume / "_triton_models").iterdir())
        cached = [*(self.volume / "_adapter" / "artifacts").iterdir()]
        ours = [path for path in (self.volume / "_adapter").iterdir() if path.name not in (*OWN_FILES, "staging", "trash", "artifacts")]
        assert ours + [path for path in cached if not (path / "meta.json").is_file()] == []


@contextmanager
def neighbours_of(volume: Path, config: Path, s3: S3Server, target: str) -> Iterator[tuple[AdapterProcess, S3Proxy]]:
    with S3Proxy(s3.endpoint_url) as proxy:
        (config / "s3").write_text(json.dumps(s3.storage_config(BUCKET) | {"endpoint_url": proxy.endpoint_url}))
        env = {"LOADING_CONCURRENCY": "2", "LOADTIME_TIMEOUT": "30000", "CACHE_MAX_BYTES": f"{BUDGET_MIB}MiB"}
        adapter = AdapterProcess(volume=volume, storage_config=config, triton_target=target, env=env)
        try:
            yield adapter, proxy
        finally:
            adapter.kill()
