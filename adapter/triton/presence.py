"""
Whether Triton answers, waiting until it does, and whether it is still the same process.

Owns the one view of Triton's presence: its change is logged once and counted in a metric. A Triton
that is stopped, starting, exiting or hung (it accepts connections and never answers) is *away*.
Knows nothing of models.

Theory of operation. What was known of Triton holds for as long as nothing breaks: a connection that
ends and a question that is not answered are *breaks*. The first answer after a break is a *return*,
told to whoever waits in `returned`. A return proves another process where the port was closed
meanwhile, or where the server's name is another one; else the index knows more (`confirm_restart`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeVar

import structlog

from adapter.backoff import doubling
from adapter.errors import WrongServer
from adapter.telemetry.metrics import TRITON_RESTARTS, TRITON_UP
from adapter.triton.client import CallError, PortClosed, TritonAway

ASK_SECONDS = 1.0
"""Deadline of one question: a Triton that needs longer for ServerLive (0.15 ms) hangs."""
FRESH_SECONDS = 0.25
"""So long an answer counts without asking again: a load asks no more than once."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.2
"""Between questions while Triton is away: one to a closed port costs nothing, one to a Triton that hangs has its deadline."""
WATCH_SECONDS = 1.5
"""Between questions while Triton answers: with the deadline of one, a hang is noticed within 2.5 s."""
REST_SECONDS = 0.02
"""After each question of the watch: a peer that takes connections and breaks them at once is no reason to spin."""

T = TypeVar("T")
log = structlog.stdlib.get_logger(__name__)


class Asked(Protocol):
    """What is asked of Triton here; `TritonClient` has it."""

    target: str

    async def live(self, timeout_seconds: float) -> None:
        """Returns when Triton answers. Raises CallError, WrongServer."""
        ...

    async def name(self, timeout_seconds: float) -> str:
        """The server's name. Raises CallError, WrongServer."""
        ...

    async def follow_connection(self, on_change: Callable[[bool], None]) -> None:
        """Tell each time that there is a connection, or that it has ended; returns when the client is closed."""
        ...


class Presence:
    """Asks Triton whether it is live, and remembers the answer."""

    def __init__(self, client: Asked) -> None:
        self._client = client
        self._target = client.target
        self._answered_at: float | None = None
        self._is_told = False
        """Whether the log has that Triton is away."""
        self._name: str | None = None
        """Of the server that answered last; None before the first answer, and where it does not tell its name."""
        self._breaks = 0
        self._breaks_until_answer: int | None = None
        """How many breaks there were at the last answer; None before the first one."""
        self._is_certain = False
        """Whether it is another process that comes after the break."""
        self._returned = asyncio.Event()
        self._return_is_certain = False
        self._is_counted = False
        """Whether the last return is in the metric."""
        self._restarts = 0
        self._news = asyncio.Event()
        """Set when a connection comes or goes, for the watch to look at once."""
        self._answers = asyncio.Event()
        """Set while Triton answers."""
        self.problem: str | None = f"Triton at {self._target} was not asked yet"

    async def wait(self) -> None:
        """Return as soon as Triton answers; at once if it just did."""
        if self._is_fresh():
            return
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            if await self.look():
                return
            await _within(self._answers, pause)
            if self._is_fresh():
                return

    async def until_taken(self, call: Callable[[], Awaitable[T]]) -> T:
        """Wait for Triton, call, and begin again when it was away after all. Raises everything but TritonAway."""
        pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            await self.wait()
            try:
                return await call()
            except TritonAway as away:
                self.lost(away)
            await asyncio.sleep(next(pauses))

    async def look(self) -> bool:
        """Ask once. Never raises."""
        breaks = self._breaks
        try:
            await self._client.live(ASK_SECONDS)
            name = self._name if breaks == self._breaks_until_answer else await self._ask_name()
        except (CallError, WrongServer) as failure:
            self.lost(failure)
            return False
        if breaks != self._breaks:
            return False  # the answer may be older than the break
        self._answered(name)
        return True

    async def watch(self) -> None:
        """For ever: notice without a call from ModelMesh that Triton goes, hangs and comes back."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._client.follow_connection(self._connected), name="connection to Triton")
            while True:
                self._news.clear()
                is_live = await self.look()
                await asyncio.sleep(REST_SECONDS)
                await _within(self._news, (WATCH_SECONDS if is_live else LONGEST_PAUSE_SECONDS) - REST_SECONDS)

    async def returned(self) -> bool:
        """
        Wait for the next return, or take the one that nobody has waited for.

        Returns:
            Whether it is certainly another process. Of several returns that are told as one, any of them.
        """
        await self._returned.wait()
        self._returned.clear()
        is_certain, self._return_is_certain = self._return_is_certain, False
        return is_certain

    @property
    def restarts(self) -> int:
        """How often it has certainly become another process, a death included that nothing has followed yet."""
        return self._restarts + self._is_certain

    def confirm_restart(self) -> None:
        """The last return was a restart after all: the index shows that the models are gone. Counted once."""
        if not self._is_counted:
            self._is_counted = True
            TRITON_RESTARTS.inc()
            log.warning("triton.restarted", target=self._target)

    def lost(self, failure: Exception) -> None:
        """A call found Triton away, or something else in its place."""
        if not self._is_told:
            log.warning("triton.away", target=self._target, cause=str(failure))
        self._is_told = True
        self.problem = f"Triton does not answer at {self._target}: {failure}"
        self._is_certain |= isinstance(failure, PortClosed) and self._breaks_until_answer is not None
        self._break()
        TRITON_UP.set(0)

    def _connected(self, is_connected: bool) -> None:
        if not is_connected:
            self._break()
        self._news.set()

    def _break(self) -> None:
        self._breaks += 1
        self._answered_at = None
        self._answers.clear()

    async def _ask_name(self) -> str | None:
        try:
            return await self._client.name(ASK_SECONDS)
        except TritonAway:
            raise
        except CallError as failure:
            log.debug("metadata.refused", cause=str(failure))
            return None

    def _answered(self, name: str | None) -> None:
        self._answered_at = asyncio.get_running_loop().time()
        if self.problem is not None:
            log.info("triton.answered", target=self._target)
        self._is_told = False
        self.problem = None
        TRITON_UP.set(1)
        self._answers.set()
        if self._breaks_until_answer not in (None, self._breaks):
            is_certain = self._is_certain or (None not in (name, self._name) and name != self._name)
            self._is_certain = False
            self._tell_return(is_certain)
        self._breaks_until_answer = self._breaks
        self._name = name

    def _tell_return(self, is_certain: bool) -> None:
        self._is_counted = False
        if is_certain:
            self._restarts += 1
            self.confirm_restart()
        self._return_is_certain |= is_certain
        self._returned.set()

    def _is_fresh(self) -> bool:
        now = asyncio.get_running_loop().time()
        return self._answered_at is not None and now - self._answered_at < FRESH_SECONDS


async def _within(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after the time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
