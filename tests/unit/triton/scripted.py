"""A client and a repository in memory for `TritonServer` in virtual time: everything they do is in one trace."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from adapter.model import ServerModel
from adapter.triton.client import TritonAway, TritonDied, TritonSilent
from adapter.triton.loads import Limits
from adapter.triton.server import TritonServer

GONE = "UNAVAILABLE"


class ScriptedTriton:
    """
    What `TritonClient` offers, without gRPC.

    `script[call]` holds what the next calls do: an exception is raised, a number is slept. Without
    a script entry a call works: loads and unloads take their seconds.
    """

    target = "triton:8001"
    is_connected = True

    def __init__(self, repository: ScriptedRepository) -> None:
        self.repository = repository
        self.trace = repository.trace
        self.script: dict[str, list[BaseException | float]] = defaultdict(list)
        self.is_away = False
        self.silence = False
        """Whether it accepts connections and answers no question."""
        self.asked: Counter[str] = Counter()
        self.server_name = "triton"
        self.states: dict[str, str] = {}
        self.reasons: dict[str, str] = {}
        self.load_seconds = 1.0
        self.load_failure: Exception | None = None
        """What every load ends with."""
        self.unload_seconds = 1.0
        self.lists_our_folder = True
        self.loading = 0
        self.most_loading = 0
        self.telling = 0
        self.most_telling = 0
        self._background: set[asyncio.Task[None]] = set()
        self._cut: dict[str, asyncio.Event] = {}

    async def live(self, timeout_seconds: float) -> None:
        await self._step("live")
        if self.silence:
            await asyncio.sleep(timeout_seconds)
            raise TritonSilent(f"no answer within {timeout_seconds:g} s")

    async def metadata(self, timeout_seconds: float) -> tuple[str, str]:
        await self._step("name")
        return self.server_name, "2.51.0"

    async def index(self, timeout_seconds: float = 10.0) -> list[ServerModel]:
        await self._step("index")
        if not self.lists_our_folder:
            return []
        return [
            ServerModel(name, "1" if name in self.states else "", self.states.get(name, ""), self.reasons.get(name, ""))
            for name in sorted(self.repository.directories)
        ]

    async def load(self, name: str, overrides: Mapping[str, str | bytes] | None = None) -> None:
        self.loading += 1
        self.most_loading = max(self.most_loading, self.loading)
        try:
            await self._step("load", name)
            self.states[name] = "LOADING"
            await self._loading(name)
            if self.load_failure is not None:
                raise self.load_failure
            self.states[name] = "READY"
            self.trace.append(f"loaded {name}")
        finally:
            self.loading -= 1

    async def _loading(self, name: str) -> None:
        cut = self._cut[name] = asyncio.Event()
        try:
            async with asyncio.timeout(None if self.load_seconds == math.inf else self.load_seconds):
                await cut.wait()
        except TimeoutError:
            return
        raise TritonDied("Socket closed")

    def cut(self, name: str) -> None:
        """End the connection of the load under way; the load goes on."""
        self._cut[name].set()

    async def unload(self, name: str, *, has_dependents: bool = True) -> None:
        self.telling += 1
        self.most_telling = max(self.most_telling, self.telling)
        try:
            await self._step("unload", name)
        finally:
            self.telling -= 1
        if self.states.get(name) in ("READY", "LOADING"):
            self.states[name] = "UNLOADING"
            task = asyncio.create_task(self._free(name))
            self._background.add(task)
            task.add_done_callback(self._background.discard)

    async def ready(self, name: str) -> bool:
        await self._step("ready", name)
        return self.states.get(name) == "READY"

    async def reported_bytes(self, name: str) -> int:
        await self._step("statistics", name)
        return 4096

    async def served_names(self) -> set[str]:
        await self._step("served")
        return {name for name, state in self.states.items() if state == "READY"}

    async def close(self) -> None:
        self.trace.append("close")

    async def _free(self, name: str) -> None:
        if self.unload_seconds == math.inf:
            return
        await asyncio.sleep(self.unload_seconds)
        self.states[name] = GONE
        self.trace.append(f"freed {name}")

    async def _step(self, call: str, name: str = "") -> None:
        self.asked[call] += 1
        if call not in ("live", "name", "index"):
            self.trace.append(f"{call} {name}".strip())
        if self.script[call]:
            step = self.script[call].pop(0)
            if isinstance(step, BaseException):
                raise step
            await asyncio.sleep(step)
        elif self.is_away:
            raise TritonAway("Connection refused")


class ScriptedRepository:
    """What `Repository` offers to the rest of the package, without a disk."""

    folder = Path("/models/_triton_models")

    def __init__(self) -> None:
        self.trace: list[str] = []
        self.directories: set[str] = set()
        self.bundles: dict[str, tuple[str, ...]] = {}
        """Model id → inner models, in the order to load them; those in `first` are loaded before it."""
        self.first: dict[str, tuple[str, ...]] = {}

    def inner_names(self, model_id: str) -> tuple[str, ...]:
        return self.bundles.get(model_id, ())

    def loaded_first(self, model_id: str) -> tuple[str, ...]:
        return self.first.get(model_id, ())

    def is_of_others(self, _name: str) -> bool:
        return False

    async def ensure_directory(self, model_id: str) -> None:
        if model_id not in self.directories:
            self.trace.append(f"directory {model_id}")
            self.directories.add(model_id)

    @asynccontextmanager
    async def probe(self) -> AsyncIterator[str]:
        self.directories.add("probe")
        try:
            yield "probe"
        finally:
            await self.remove("probe")

    async def remove(self, model_id: str) -> None:
        self.trace.append(f"remove {model_id}")
        self.directories.discard(model_id)

    async def sweep(self) -> None:
        self.trace.append("sweep")

    async def clear(self) -> None:
        self.trace.append("clear")
        self.directories.clear()

    def can_hold(self, name: str) -> bool:
        return "/" not in name


def serve(triton: ScriptedTriton, *, max_loading: int = 2, load_threads: int = 4, load_timeout_seconds: float = 30) -> TritonServer:
    """The server under test."""
    return TritonServer(
        triton,  # type: ignore[arg-type] # offers what is used of it
        triton.repository,  # type: ignore[arg-type] # offers what is used of it
        Limits(max_loading, load_threads, load_timeout_seconds),
    )


async def unnoticed() -> None:
    """For a load whose sending does not matter."""


async def cancel(task: asyncio.Task[None]) -> None:
    """As a caller that goes away, and is gone at once."""
    now = asyncio.get_running_loop().time()
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()
    assert asyncio.get_running_loop().time() == now
