"""A run: ModelMesh, its clients, its faults, all rules watched; and an end at which nothing may be left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.mesh.faults import Fault, Faults
from tests.mesh.ground import State
from tests.mesh.invariants import Invariants
from tests.mesh.mesh import Mesh
from tests.mesh.population import Case
from tests.mesh.traffic import Traffic

LOOK_SECONDS = 0.5
LINE_SECONDS = 1.0
END_SECONDS = 240.0
"""For everything to be unloaded at the end: above the 180 s that an unload may take."""
INDEX_SECONDS = 60.0
"""For Triton's index then."""
END_PAUSE = 0.2


@dataclass(kw_only=True)
class Session:
    """What to run, on what."""

    mesh: Mesh
    cases: Sequence[Case]
    seconds: float
    rate: float = 15.0
    """Requests a second."""
    seed: int = 1
    volume: Path | None = None
    faults: Mapping[str, Fault] = field(default_factory=dict)
    fault_pause: float = 6.0
    keeps_going: bool = False
    """Also after a rule is broken."""
    line: Callable[[str], None] = lambda _: None
    """Takes the line of each second."""

    async def run(self) -> bool:
        """
        Whether every rule held; what did not is in `mesh.watch.broken`. ModelMesh is started, and has ended afterwards.

        Raises:
            FatalError: ModelMesh would not have started.
        """
        await self.mesh.start()
        memory = {case.model.model_id: case.memory_bytes for case in self.cases}
        self._invariants = Invariants(self.mesh, volume=self.volume, memory_bytes=memory)
        self._traffic = Traffic(self.mesh, self.cases, random.Random(self.seed), self.rate)
        watch = self.mesh.watch
        works: list[Coroutine[Any, Any, object]] = [self._steps(), self._invariants.run(LOOK_SECONDS), self._lines()]
        works += [] if self.keeps_going else [watch.is_broken.wait()]
        tasks = [asyncio.create_task(work) for work in works]
        try:
            ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._traffic.end()
            await self.mesh.crash()
        for task in ended:
            task.result()
        return not watch.broken

    async def _steps(self) -> None:
        """Traffic, with faults if there are any; then a look at everything that is called loaded; then all is unloaded."""
        clients = asyncio.create_task(self._traffic.run())
        try:
            if self.faults:
                faults = Faults(self.faults, self._traffic, random.Random(self.seed), pause_seconds=self.fault_pause)
                await faults.run(self.seconds)
            else:
                await asyncio.sleep(self.seconds)
        finally:
            clients.cancel()
            with suppress(asyncio.CancelledError):
                await clients
        await self._traffic.end()
        await self._traffic.survivors(list(self.mesh.loaded().values()), self.mesh.watch.heal_seconds)
        await self._empty()

    async def _empty(self) -> None:
        """All models are unregistered: index and folder are empty when the last unload is answered."""
        mesh, end = self.mesh, self.mesh.watch.now() + END_SECONDS
        for case in self.cases:
            mesh.unregister(case.model.model_id)
        while mesh.accounted():
            if mesh.watch.now() > end:
                words = f"{sorted(mesh.accounted())} are not unloaded after {END_SECONDS:g} s"
                return mesh.watch.tell("each call is answered within its bound", words)
            await asyncio.sleep(END_PAUSE)
        end = mesh.watch.now() + INDEX_SECONDS
        while not await self._invariants.look():
            if mesh.watch.now() > end:
                words = f"Triton's index cannot be had: {self._invariants.failure or 'ModelMesh has died'}"
                return mesh.watch.tell("accounted ≥ held", words)
            await asyncio.sleep(END_PAUSE)
        return None

    async def _lines(self) -> None:
        while True:
            await asyncio.sleep(LINE_SECONDS)
            watch = self.mesh.watch
            self.line(watch.figures.line(watch.now() - watch.began, self.state()))

    def state(self) -> str:
        """Of the cache, and of the faults."""
        ground = self.mesh.ground
        if ground is None:
            return "ModelMesh starts"
        accounts, states = ground.accounts, [copy.state for copy in ground.copies.values()]
        loading = sum(state < State.ACTIVE for state in states)
        text = f"{states.count(State.ACTIVE)} loaded, {loading} loading, {100 * accounts.accounted // accounts.capacity} % full"
        return text + "".join(f" !! {kind}" for kind in self.mesh.watch.faults)
