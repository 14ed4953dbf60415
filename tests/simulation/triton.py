"""
A strict Triton in virtual time: what `shared/reference` measured of the real one, and what it was never asked to bear.

Operations on one name follow each other, in any order of those that wait. A load cannot be cancelled, needs a thread of a
pool, and is a no-op where nothing is newer. An unload returns while the memory is held. The index shows nothing but
directories that exist, and fails for all over one bad entry. It dies, hangs, and is slow.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from adapter.errors import ModelRefused
from adapter.model import ServerModel
from adapter.triton.client import CallRefused, TritonDied
from tests.simulation.loop import Life, VirtualLoop


@dataclass(eq=False)
class Held:
    """One model of this Triton."""

    state: str = ""
    files: dict[str, bytes] | None = None
    """What it serves."""
    placement: int = -1
    """Which directory it was loaded from."""
    is_taken: bool = False
    waiting: list[asyncio.Future[None]] = field(default_factory=list)


def files_below(folder: Path) -> dict[str, bytes]:
    """What a directory holds, by path; links are followed."""
    found: dict[str, bytes] = {}
    for place, _, names in os.walk(folder, followlinks=True):
        for name in names:
            found[os.path.relpath(os.path.join(place, name), folder)] = Path(place, name).read_bytes()
    return found


class Client(Protocol):
    """Who is connected."""

    loads: Counter[str]
    is_connected: bool


class Triton:
    """The process, or none."""

    def __init__(self, loop: VirtualLoop, folder: Path, decide: random.Random, *, threads: int, has_ids: bool) -> None:
        self.loop = loop
        self.folder = folder
        self.decide = decide
        self.threads = threads
        self.has_ids = has_ids
        self.load_seconds = 1.0
        self.unload_seconds = 0.5
        self.unload_call_seconds = 0.0
        """So long it takes until an unload is answered; the memory is free later."""
        self.index_seconds = self.usual_index_seconds = 0.001
        self.back_after_seconds = 0.1
        self.wrong_rate = 0.0
        """How many calls are refused, as by a Triton that was started with other flags."""
        self.kind_of: Callable[[dict[str, bytes]], str] = lambda _: "good"
        """What becomes of a load of these files: `good`, `bad`, `deadly`, `endless`."""
        self.violated: Callable[[str], None] = lambda _: None
        self.met: Callable[[str], None] = lambda _: None
        self.placements: dict[str, int] = {}
        """How often a directory of this name has come."""
        self.about_to_answer: Callable[[bool], None] = lambda _: None
        """With whether the call has had a thread of its own: a load, or an unload."""
        self.before_unload: Callable[[], None] = lambda: None
        self.before_load: Callable[[str], None] = lambda _: None
        self.clients: list[Client] = []
        self.died_at = -1.0
        self.starts = 0
        self.lives: list[Life] = []
        self.is_open = False
        self.is_silent = False
        self.open()

    # ---- its life

    def open(self) -> None:
        """A new process listens."""
        if self.is_open:
            return
        self.starts += 1
        self.life = Life(f"triton {self.starts}")
        self.lives.append(self.life)
        self.models: dict[str, Held] = {}
        self.thread = asyncio.Lock()
        self.free_threads = self.threads
        self.waiting_loads: list[asyncio.Future[None]] = []
        self.calls: dict[asyncio.Future[Any], Client] = {}
        self.asleep: list[Callable[[], None]] = []
        self.is_open, self.is_silent = True, False
        for client in self.clients:
            client.loads.clear()

    def kill(self, back_after: float | None = None) -> None:
        """As `kill -9`; comes back some time later."""
        if self.is_open:
            self.met("triton killed" + (" in a load" if any(held.state == "LOADING" for held in self.models.values()) else ""))
            self.died_at = self.loop.time()
            self.life.is_alive = False
            self.is_open = False
            for client in self.clients:
                client.loads.clear()
            self.cut()
        seconds = self.back_after_seconds if back_after is None else back_after
        if seconds:
            self.loop.call_later(seconds, self.open, context=self.loop.in_name_of(None))
        else:
            self.open()

    def cut(self) -> None:
        """All connections end; a Triton that lives goes on with what it has."""
        calls, self.calls = self.calls, {}
        for call in calls:
            if not call.done():
                call.set_exception(TritonDied("Socket closed"))
        for client in self.clients:
            client.is_connected = False

    def hang(self, seconds: float) -> None:
        """It accepts connections and answers nothing, for so long."""
        if not self.is_open or self.is_silent:
            return
        self.met("triton hung")
        self.is_silent = True
        self.loop.call_later(seconds, self._wake, context=self.loop.in_name_of(self.life))

    def _wake(self) -> None:
        self.is_silent = False
        asleep, self.asleep = self.asleep, []
        for begin in asleep:
            begin()

    @property
    def held(self) -> dict[str, str]:
        """Name → state of what holds memory."""
        return (
            {name: held.state for name, held in self.models.items() if held.state in ("LOADING", "READY", "UNLOADING")}
            if self.is_open
            else {}
        )

    # ---- calls

    def take(self, answer: asyncio.Future[Any], work: Callable[[], Coroutine[Any, Any, Any]], client: Client, *, has_thread: bool) -> None:
        """A call is on its way; its caller may go meanwhile."""
        self.calls[answer] = client
        life = self.life

        def begin() -> None:
            if self.is_silent:
                self.asleep.append(begin)
            else:
                self.loop.create_task(self._serve(answer, work, life, has_thread=has_thread))

        self.loop.call_later(self.moment(), begin, context=self.loop.in_name_of(life))

    async def _serve(
        self, answer: asyncio.Future[Any], work: Callable[[], Coroutine[Any, Any, Any]], life: Life, *, has_thread: bool
    ) -> None:
        """One thread serves all calls that have none of their own, and all answers: a listing holds up the others."""
        failure: Exception | None = None
        result = None
        try:
            if has_thread:
                result = await work()
            async with self.thread:
                if not has_thread:
                    result = await work()
        except Exception as error:
            failure = error
        await asyncio.sleep(self.moment())
        while self.is_silent:
            awake = self.loop.create_future()
            self.asleep.append(partial(_wake, awake))
            await awake
        if life is self.life and not answer.done():
            self.about_to_answer(has_thread)
            if failure is not None:
                answer.set_exception(failure)
            else:
                answer.set_result(result)

    def moment(self) -> float:
        return self.decide.choice((0.0, 0.0002, 0.001, 0.01))

    async def _turn(self, held: Held) -> None:
        if held.is_taken:
            mine = self.loop.create_future()
            held.waiting.append(mine)
            await mine
        held.is_taken = True

    def _pass_on(self, held: Held) -> None:
        held.is_taken = False
        if held.waiting:
            held.is_taken = True
            held.waiting.pop(self.decide.randrange(len(held.waiting))).set_result(None)

    async def load(self, name: str) -> None:
        held = self.models.setdefault(name, Held())
        await self._turn(held)
        try:
            await self._load(name, held)
        finally:
            self._pass_on(held)

    async def _load(self, name: str, held: Held) -> None:
        folder = self.folder / name
        if not folder.is_dir() or not any(folder.iterdir()):
            raise ModelRefused("failed to poll from model repository")
        placement = self.placements.get(name, 0)
        if held.state == "READY":
            if placement != held.placement:
                self.violated(f"{name} was loaded over itself")
            return
        if held.state == "UNLOADING":
            self.violated(f"{name} was loaded while Triton was freeing it")
        held.state, held.placement, held.files = "LOADING", placement, files_below(folder)
        if not self.free_threads:
            self.met("a load waits for a load thread")
            mine = self.loop.create_future()
            self.waiting_loads.append(mine)
            await mine
        else:
            self.free_threads -= 1
        kind = self.kind_of(held.files)
        if kind != "good":
            self.met(f"{kind} load")
        try:
            if kind == "endless":
                await self.loop.create_future()
            await asyncio.sleep(self.load_seconds * self.decide.choice((0.5, 1, 1, 2)))
            if kind == "deadly":
                self.loop.call_soon(self.kill, context=self.loop.in_name_of(None))
                await self.loop.create_future()
        finally:
            if self.waiting_loads:
                self.waiting_loads.pop(0).set_result(None)
            else:
                self.free_threads += 1
        if kind == "bad":
            held.state, held.files = "UNAVAILABLE", None
            raise ModelRefused("bad model")
        held.state = "READY"

    async def unload(self, name: str) -> None:
        held = self.models.get(name)
        if held is None:
            return
        await self._turn(held)
        try:
            if held.state == "READY":
                held.state = "UNLOADING"
                self.loop.create_task(self._free(held))
                if self.unload_call_seconds:
                    await asyncio.sleep(self.unload_call_seconds)
        finally:
            self._pass_on(held)

    async def _free(self, held: Held) -> None:
        await asyncio.sleep(self.unload_seconds * self.decide.choice((0, 0.5, 1, 3)))
        held.state, held.files = "UNAVAILABLE", None

    async def index(self) -> list[ServerModel]:
        before = sorted(self._entries())
        if self.index_seconds > 1:
            self.met("slow index")
        await asyncio.sleep(self.index_seconds * self.decide.random())
        after = self._entries()
        if set(before) - set(after) and self.decide.random() < 0.5:
            self.met("index met a directory that vanished")
            raise CallRefused("failed to stat file")
        rows: list[ServerModel] = []
        for name in sorted(after):
            path = self.folder / name
            if path.is_symlink() and not path.exists():
                self.met("index met a bad entry")
                raise CallRefused(f"failed to stat file {path}")
            if path.is_dir():
                held = self.models.get(name, Held())
                rows.append(ServerModel(name, "1" if held.state else "", held.state, "unloaded" if held.state == "UNAVAILABLE" else ""))
        await asyncio.sleep(self.index_seconds * self.decide.random())
        return rows

    def _entries(self) -> list[str]:
        return os.listdir(self.folder) if self.folder.is_dir() else []

    def serves(self, name: str) -> bool:
        held = self.models.get(name)
        return self.is_open and held is not None and held.state == "READY"


def _wake(sleeper: asyncio.Future[None]) -> None:
    if not sleeper.done():
        sleeper.set_result(None)
