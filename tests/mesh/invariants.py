"""Asks Triton's index, and looks into the folder, all the time: what is held is accounted, what was unloaded is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from tests.mesh.announced import UNIT_BYTES
from tests.mesh.ground import Ground
from tests.mesh.mesh import Mesh
from tests.mesh.runtime import CallError

REPOSITORY = "_triton_models"
PROBE = "adapter-probe-"
ACCOUNTED = "accounted ≥ held"
RESTS = 10
"""A look is followed by a rest of its duration times this number."""
GONE = "what was unloaded is gone"


class Invariants:
    """One for a run; a restart of ModelMesh meanwhile is fine."""

    def __init__(self, mesh: Mesh, *, volume: Path | None = None, memory_bytes: Mapping[str, int] | None = None) -> None:
        """`volume`: shared with Triton; its models are in a folder there. `memory_bytes`: what each model really needs, where known."""
        self._mesh = mesh
        self._folder = volume / REPOSITORY if volume else None
        self._memory = memory_bytes or {}
        self.failure: str | None = None
        """Why the last look has compared nothing."""

    async def run(self, seconds: float) -> None:
        """Look so often, and soon after each unload that is answered, for ever. Triton's index is rarely busy with us."""
        watch = self._mesh.watch
        while True:
            watch.answered.clear()
            began = watch.now()
            await self.look()
            await asyncio.sleep(min(seconds, RESTS * (watch.now() - began)))
            with suppress(TimeoutError):
                await asyncio.wait_for(watch.answered.wait(), seconds)

    async def look(self) -> bool:
        """Once. False: Triton did not answer, or ModelMesh has died meanwhile, so nothing was compared."""
        mesh, ground = self._mesh, self._mesh.ground
        if ground is None:
            return False
        began, ground.accounts.peak = mesh.watch.now(), ground.accounts.accounted
        before = mesh.accounted()
        try:
            held = await mesh.runtime.index()
        except CallError as error:
            self.failure = str(error)
            mesh.watch.figures.failed("index", self.failure)
            return False
        if mesh.ground is not ground:
            return False
        mesh.watch.figures.took("index", mesh.watch.now() - began)
        self._compare(ground, began, before, held)
        return True

    def _compare(self, ground: Ground, began: float, before: set[str], held: Mapping[str, str]) -> None:
        """What was accounted at some moment since we asked is accounted."""
        watch = self._mesh.watch
        accounted = self._mesh.accounted() | before
        accounted |= {model_id for model_id, at in ground.unaccounted_at.items() if at >= began}
        for model_id, state in held.items():
            if model_id not in accounted:
                self._tell(ground, model_id, f"is {state} in Triton's index")
        needed = sum(self._memory.get(model_id, 0) for model_id in held if model_id not in ground.guessed)
        most = ground.accounts.peak * UNIT_BYTES
        if needed > most:
            weights = {model_id: entry.weight * UNIT_BYTES for model_id, entry in ground.accounts.entries.items()}
            each = ", ".join(f"{name} {state} {self._memory.get(name)} ({weights.get(name, '-')})" for name, state in held.items())
            watch.tell(ACCOUNTED, f"Triton holds {needed} bytes; {most} are accounted: {each} {ground.accounts}")
        if self._folder is not None:
            for name in self._names(self._folder):
                if name not in accounted:
                    self._tell(ground, name, f"lies in {self._folder.name}")
        ground.accounts.check()

    def _tell(self, ground: Ground, model_id: str, words: str) -> None:
        at = ground.unaccounted_at.get(model_id)
        if at is None:
            self._mesh.watch.tell(ACCOUNTED, f"{model_id} {words}, and was not loaded by this ModelMesh", model_id)
        else:
            seconds = self._mesh.watch.now() - at
            self._mesh.watch.tell(GONE, f"{model_id} {words} {seconds:.2f} s after its unload was answered", model_id)

    @staticmethod
    def _names(folder: Path) -> list[str]:
        """But for the adapter's own probe, which is there for a moment: a look whether Triton sees this very folder."""
        try:
            return [path.name for path in folder.iterdir() if not path.name.startswith(PROBE)]
        except FileNotFoundError:
            return []
