"""What ModelMesh and its users do in a soak: loads, reloads, failures, cancels, and an unload at the end of each cycle."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from adapter._pb import model_runtime_pb2 as spi
from tests.builders import load_request, predict_request

CALL_SECONDS = 120
IDS = 12
PATHS = 6
MISSING, REFUSED = "missing", "refused"
Code = grpc.StatusCode
EXPECTED: dict[str, frozenset[grpc.StatusCode]] = {
    "load": frozenset(),
    "reload": frozenset(),
    "new content": frozenset(),
    "missing": frozenset({Code.NOT_FOUND}),
    "refused": frozenset({Code.INTERNAL}),
    "bad request": frozenset({Code.INVALID_ARGUMENT}),
    "cancelled": frozenset({Code.CANCELLED}),
}
"""Kind of cycle → codes that its load may end with, beside OK. Whatever else comes is a problem."""
WEIGHTS = (50, 15, 10, 8, 7, 3, 7)
MOST_PROBLEMS = 20
"""With as many a run is given up."""


@dataclass
class Traffic:
    """Its calls and their times. One random number generator decides everything."""

    runtime: Any
    dice: random.Random
    change: Callable[[str], None]
    """Gives a path new content."""
    tried: Counter[str] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    load_seconds: list[float] = field(default_factory=list)
    """Of plain loads since they were looked at last."""
    unload_seconds: list[float] = field(default_factory=list)

    @property
    def is_lost(self) -> bool:
        """So much went wrong that going on would only take time: each call to a Triton that is gone takes all of its budget."""
        return len(self.problems) >= MOST_PROBLEMS

    async def stretch(self, cycles: int, workers: int) -> None:
        """`cycles` cycles, by workers with ids of their own."""
        left = iter(range(cycles))
        await asyncio.gather(*(self._work(worker, workers, left) for worker in range(workers)))

    async def warm(self, loads: int, workers: int) -> None:
        """`loads` loads of new content, each followed by its unload."""
        left = iter(range(loads))

        async def work(number: int) -> None:
            for _ in left:
                path = f"path-{number % PATHS}"
                self.change(path)
                await self._load(f"warm-{number}", path)
                await self._unload(f"warm-{number}")

        await asyncio.gather(*(work(number) for number in range(workers)))
        self.unload_seconds.clear()

    async def _work(self, worker: int, workers: int, left: Any) -> None:
        for _ in left:
            if self.is_lost:
                return
            model_id = f"model-{self.dice.randrange(worker, IDS, workers)}"
            kind = self.dice.choices(list(EXPECTED), WEIGHTS)[0]
            self.tried[kind] += 1
            try:
                await self._cycle(kind, model_id)
            except grpc.aio.AioRpcError as error:
                if error.code() not in EXPECTED[kind]:
                    self.problems.append(f"{kind}: {error.code().name} {error.details()}")
            await self._unload(model_id)

    async def _cycle(self, kind: str, model_id: str) -> None:
        path = f"path-{self.dice.randrange(PATHS)}"
        if kind == "new content":
            self.change(path)
        if kind in ("missing", "refused"):
            await self._load(f"{kind}-{model_id}" if kind == "refused" else model_id, kind)
        elif kind == "bad request":
            await self.runtime.loadModel(spi.LoadModelRequest(modelId=model_id, modelKey="{"), timeout=CALL_SECONDS)
        elif kind == "cancelled":
            await self._cancelled(model_id, path)
        else:
            await self.runtime.predictModelSize(predict_request(model_id, "python", path), timeout=CALL_SECONDS)
            began = time.monotonic()
            await self._load(model_id, path)
            self.load_seconds.append(time.monotonic() - began)
            if kind == "reload":
                await self._load(model_id, f"path-{self.dice.randrange(PATHS)}")

    async def _load(self, model_id: str, path: str) -> None:
        try:
            await self.runtime.loadModel(load_request(model_id, "python", path), timeout=CALL_SECONDS)
        finally:
            if path == REFUSED:
                await self._unload(model_id)

    async def _cancelled(self, model_id: str, path: str) -> None:
        call = self.runtime.loadModel(load_request(model_id, "python", path), timeout=CALL_SECONDS)
        asyncio.get_running_loop().call_later(self.dice.uniform(0, 0.05), call.cancel)
        try:
            await call
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise

    async def _unload(self, model_id: str) -> None:
        began = time.monotonic()
        try:
            await self.runtime.unloadModel(spi.UnloadModelRequest(modelId=model_id), timeout=CALL_SECONDS)
        except grpc.aio.AioRpcError as error:
            self.problems.append(f"an unload: {error.code().name} {error.details()}")
        self.unload_seconds.append(time.monotonic() - began)
