"""A scripted Triton that answers nothing while it lists its repository, as the real one, for tests in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

from adapter.model import ServerModel
from adapter.triton.client import TritonSilent
from tests.unit.triton.scripted import ScriptedRepository, ScriptedTriton

DEADLINES = {"live": 1.0, "name": 1.0, "load": None, "unload": None}


class OneThread(ScriptedTriton):
    """Its one thread works on a listing to the end, whoever still waits for it."""

    def __init__(self, *, index_seconds: float) -> None:
        super().__init__(ScriptedRepository())
        self.index_seconds = index_seconds
        self.listings: list[tuple[float, float]] = []
        """Begin and end of each, by the clock of the loop; the last one may be under way."""
        self.hangs = False

    async def index(self, names: Collection[str] | None = None, timeout_seconds: float = 10.0) -> list[ServerModel]:
        began = max(self.now(), self.free_at())
        self.listings.append((began, began + self.index_seconds))
        left = began + self.index_seconds - self.now()
        if left > timeout_seconds:
            await asyncio.sleep(timeout_seconds)
            raise TritonSilent(f"no answer within {timeout_seconds:g} s")
        await asyncio.sleep(left)
        return await super().index(names)

    def free_at(self) -> float:
        """When the last listing ends."""
        return self.listings[-1][1] if self.listings else 0.0

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def busy_seconds(self) -> float:
        """Of all listings."""
        return sum(end - began for began, end in self.listings)

    async def _step(self, call: str, name: str = "") -> None:
        if call != "index":
            deadline = DEADLINES.get(call, 10.0)
            left = self.free_at() - self.now()
            if deadline is not None and (self.hangs or left > deadline):
                await asyncio.sleep(deadline)
                raise TritonSilent(f"no answer within {deadline:g} s")
            await asyncio.sleep(max(0.0, left))
        await super()._step(call, name)
