"""Faults, one after the other, and what has survived each."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping

from tests.mesh.announced import FatalError
from tests.mesh.figures import FaultRow
from tests.mesh.mesh import Mesh
from tests.mesh.traffic import Traffic

Fault = Callable[[], Awaitable[None]]


class Faults:
    """They happen to one run."""

    def __init__(self, kinds: Mapping[str, Fault], traffic: Traffic, rng: random.Random, *, pause_seconds: float) -> None:
        """`kinds`: name → brings it about, and returns when it is over. `pause_seconds`: calm time between two of them, on average."""
        self._kinds = dict(kinds)
        self._traffic = traffic
        self._rng = rng
        self._pause = pause_seconds

    async def run(self, seconds: float) -> None:
        """Each kind once in a random order, then again, for so long; the last one is judged too."""
        watch = self._traffic.mesh.watch
        end = watch.now() + seconds
        queue: list[str] = []
        while True:
            await asyncio.sleep(self._pause * self._rng.uniform(0.5, 1.5))
            if watch.now() > end:
                return
            queue = queue or self._rng.sample(sorted(self._kinds), len(self._kinds))
            await self.one(queue.pop())

    async def one(self, kind: str) -> FaultRow:
        """One fault, and a look at every model that was called loaded when it came."""
        traffic, watch = self._traffic, self._traffic.mesh.watch
        before = list(traffic.mesh.loaded().values())
        with watch.fault(kind):
            await self._kinds[kind]()
        tried, survived, seconds = await traffic.survivors(before, watch.heal_seconds)
        row = watch.figures.faults.setdefault(kind, FaultRow())
        row.times += 1
        row.tried += tried
        row.survived += survived
        row.slowest = max(row.slowest, seconds)
        return row


def mesh_faults(mesh: Mesh) -> dict[str, Fault]:
    """What can happen without touching the neighbours; nothing of before is held when the runtime is READY again."""

    async def restart() -> None:
        try:
            await mesh.start()
        except FatalError as error:
            mesh.watch.tell("ModelMesh starts", str(error))

    return {"ModelMesh dies": restart}
