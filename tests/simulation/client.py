"""The adapter's connection to the virtual Triton."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from adapter.errors import WrongServer
from adapter.model import ServerModel
from adapter.triton.client import CallRefused, PortClosed, TritonSilent
from tests.simulation.triton import Triton

MOST_UNLOADS = 16
PATIENCE_SECONDS = 10.0
"""An unload call that Triton has not answered for so long holds up nobody."""


class Client:
    """As `adapter.triton.client.TritonClient`; what it may not do is a violation."""

    target = "triton:8001"

    def __init__(self, triton: Triton, most_loads: int) -> None:
        self._triton = triton
        self._most_loads = most_loads
        self.is_connected = triton.is_open
        self.on_wrong: Callable[[], None] = lambda: None
        self.loads = Counter[str]()
        """By name: a load whose connection was cut is asked for again, and both calls end with it."""
        self._unloads: list[float] = []
        triton.clients.append(self)

    async def close(self) -> None:
        if self in self._triton.clients:
            self._triton.clients.remove(self)

    async def _call(
        self,
        work: Callable[[], Coroutine[Any, Any, Any]],
        timeout_seconds: float | None = None,
        *,
        is_control: bool = True,
        has_thread: bool = False,
    ) -> Any:
        triton = self._triton
        if not triton.is_open:
            await asyncio.sleep(triton.moment())
            raise PortClosed("Connection refused")
        if is_control and triton.decide.random() < triton.wrong_rate:
            await asyncio.sleep(triton.moment())
            self.on_wrong()
            raise WrongServer("restricted")
        self.is_connected = True
        answer = triton.loop.create_future()
        triton.take(answer, work, self, has_thread=has_thread)
        try:
            async with asyncio.timeout(timeout_seconds) as bound:
                return await answer
        except TimeoutError:
            if not bound.expired():
                raise
            raise TritonSilent(f"no answer within {timeout_seconds:g} s") from None
        finally:
            triton.calls.pop(answer, None)

    async def live(self, timeout_seconds: float) -> None:
        await self._call(_nothing, timeout_seconds, is_control=False)

    async def metadata(self, timeout_seconds: float) -> tuple[str, str]:
        async def told() -> str:
            return f"triton-{self._triton.starts}" if self._triton.has_ids else "triton"

        return str(await self._call(told, timeout_seconds, is_control=False)), "2.51.0"

    async def index(self, timeout_seconds: float = 10.0) -> list[ServerModel]:
        found: list[ServerModel] = await self._call(self._triton.index, timeout_seconds)
        return found

    async def load(self, name: str, overrides: Mapping[str, str | bytes] | None = None) -> None:
        triton, life = self._triton, self._triton.life
        if triton.is_open:
            triton.before_load(name)

        async def load() -> None:
            self.loads[name] += 1
            if len(self.loads) > self._most_loads:
                triton.violated(f"{len(self.loads)} loads of one adapter are in Triton at once: {sorted(self.loads)}")
            try:
                await triton.load(name)
            finally:
                if life is triton.life:
                    self.loads[name] -= 1
                    self.loads += Counter[str]()

        await self._call(load, has_thread=True)

    async def unload(self, name: str, *, has_dependents: bool = True) -> None:
        triton, now = self._triton, self._triton.loop.time()
        triton.before_unload()
        self._unloads.append(now)
        young = sum(now - began < PATIENCE_SECONDS for began in self._unloads)
        if young > MOST_UNLOADS:
            triton.violated(f"{young} unload calls at once")
        try:
            await self._call(lambda: triton.unload(name), has_thread=True)
        finally:
            self._unloads.remove(now)

    async def ready(self, name: str) -> bool:
        async def told() -> bool:
            return self._triton.serves(name)

        return bool(await self._call(told, 10.0))

    async def reported_bytes(self, name: str) -> int:
        async def told() -> int:
            if not self._triton.serves(name):
                raise CallRefused(f"requested model '{name}' is not available")
            return 0

        return int(await self._call(told, 10.0))

    async def served_names(self) -> set[str]:
        async def told() -> set[str]:
            return {name for name in self._triton.models if self._triton.serves(name)}

        found: set[str] = await self._call(told, 10.0)
        return found


async def _nothing() -> None:
    return
