"""
Whether Triton answers, waiting until it does, and whether it is still the same process.

Owns the one view of Triton's presence: its change is logged once and counted in a metric. A Triton
that is stopped, starting, exiting or hung (it accepts connections and never answers) is *away*.
Knows nothing of models.

Theory of operation. What was known of Triton holds for as long as nothing breaks: a connection that
ends and a question that is not answered are *breaks*; the first answer after a break is a *return* (`returns`).

While Triton lists its repository it answers nothing else (one thread serves all but inference). So a
question that gets no answer in time is no break where it fell together with a listing of ours
(`listing`) and Triton's process still greets new connections (`handshake`); a process that does not,
a closed port and a connection that ends are breaks all the same.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import structlog

from adapter.backoff import doubling
from adapter.errors import ServerDied, WrongServer
from adapter.telemetry.metrics import TRITON_UP
from adapter.triton.client import CallError, PortClosed, TritonAway, TritonSilent
from adapter.triton.listings import Listing, Listings
from adapter.triton.returns import Returns
from adapter.triton.silence import Silence

ASK_SECONDS = 1.0
"""Deadline of one question: a Triton that needs longer for ServerLive (0.15 ms) hangs."""
FRESH_SECONDS = 0.25
"""
So long an answer counts without asking again, that to a call too: one thread of Triton answers both. A load asks once, beside the
listing of the storage, and once more if the files take longer than that; one that follows another asks nothing.
"""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.2
"""Between questions while Triton is away: one to a closed port costs nothing, one to a Triton that hangs has its deadline."""
WATCH_SECONDS = 1.5
"""Between questions while Triton answers: with the deadline of one, a hang is noticed within 2.5 s."""
REST_SECONDS = 0.02
"""After each question of the watch: a peer that takes connections and breaks them at once is no reason to spin."""
GREETING_SECONDS = 2.0
"""For a process to greet a connection; one that runs needs a millisecond."""
LISTING_SECONDS = 2.0
"""Between questions of one that waits, while a listing of ours keeps Triton from answering; its end wakes him at once."""

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

    async def runs(self, timeout_seconds: float) -> bool:
        """Whether its process greets a new connection. Never raises."""
        ...

    async def follow_connection(self, on_change: Callable[[bool], None]) -> None:
        """Tell each time that there is a connection, or that it has ended; returns when the client is closed."""
        ...


class Presence:
    """Asks Triton whether it is live, and remembers the answer."""

    def __init__(self, client: Asked) -> None:
        self._client = client
        self._target = client.target
        self._time = asyncio.get_running_loop().time
        self._returns = Returns(client.target, self._time)
        self._listings = Listings(self._time)
        self._silence = Silence(self._time)
        self._answered_at: float | None = None
        self._is_told = False
        """Whether the log has that Triton is away."""
        self._news = asyncio.Event()
        """Set when a connection comes or goes, for the watch to look at once."""
        self._answers = asyncio.Event()
        """Set while Triton answers."""
        self._ahead: asyncio.Task[bool] | None = None
        """The last question that was asked before anybody waited for its answer."""
        self._asking: asyncio.Task[bool] | None = None
        self._askers = 0
        """How many wait for that question."""
        self.problem: str | None = f"Triton at {self._target} was not asked yet"

    @property
    def is_live(self) -> bool:
        """Whether Triton has answered, and nothing has broken since. From any thread."""
        return self.problem is None

    def silent_seconds(self) -> float:
        """
        Since Triton's last answer to anything, refusals included. From any thread.

        0 while nobody listens on its port. While a listing of ours runs, the greeting of a new connection is an answer too; of a
        listing that has got no answer in time, for as long again.
        """
        return self._silence.seconds()

    async def wait(self) -> None:
        """Return as soon as Triton answers; at once if it just did."""
        if self._is_fresh():
            return
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            if await self._look_together():
                return
            if self._listings.is_quiet.is_set():
                await _within(self._answers, pause)
            else:
                await _within(self._listings.is_quiet, LISTING_SECONDS)
            if self._is_fresh():
                return

    async def answers(self) -> bool:
        """Whether Triton answers now: asked once, unless it just did. Never raises."""
        return self._is_fresh() or await self._look_together()

    def ask_ahead(self) -> None:
        """For one that will wait for Triton soon: asked now, unless it just answered or is being asked."""
        if self._asking is None and not self._is_fresh():
            self._ahead = asyncio.create_task(self.answers(), name="question for Triton, asked ahead")

    async def _look_together(self) -> bool:
        """One question for all who wait at a time: thousands would get no answer in time, and ask again."""
        if self._asking is None:
            self._asking = asyncio.create_task(self.look(), name="question for Triton")
        asking = self._asking
        self._askers += 1
        try:
            return await asyncio.shield(asking)
        finally:
            if asking is self._asking:
                self._askers -= 1
                if asking.done() or not self._askers:
                    asking.cancel()
                    self._asking, self._askers = None, 0

    def listing(self) -> AbstractContextManager[Listing]:
        """Inside, Triton is asked for its index; one at a time. Raise TritonSilent through it when the time is over."""
        return self._listings.run()

    async def until_taken(self, call: Callable[[], Awaitable[T]]) -> T:
        """Wait for Triton, call, and begin again when it was away after all. Raises everything but TritonAway."""
        pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            await self.wait()
            earlier, breaks = self._listings.over(), self._returns.breaks
            try:
                answer = await call()
            except TritonAway as away:
                if not self._fell_into_a_listing(away, earlier):
                    self.lost(away)
            except ServerDied:
                raise
            except Exception:
                self.heard()
                raise
            else:
                self.heard()
                if breaks == self._returns.breaks and self._answered_at is not None:
                    self._answered_at = self._time()
                return answer
            await asyncio.sleep(next(pauses))

    async def look(self) -> bool:
        """Ask once. Never raises."""
        breaks, is_unbroken, earlier = self._returns.breaks, self._returns.is_unbroken, self._listings.over()
        try:
            await self._client.live(ASK_SECONDS)
            name = self._returns.name if is_unbroken else await self._ask_name()
        except (CallError, WrongServer) as failure:
            if not await self._is_excused(failure, earlier):
                self.lost(failure)
            return False
        self.heard()
        if breaks != self._returns.breaks:
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
        """Wait for the next return, or take the one that nobody has waited for; whether it is certainly another process."""
        return await self._returns.returned()

    @property
    def restarts(self) -> int:
        """How often it has certainly become another process, a death included that nothing has followed yet."""
        return self._returns.restarts

    @property
    def began_at(self) -> float | None:
        """
        Time of the loop at which the Triton that is there now has first answered: what was asked earlier is not in it.

        None while there is none: before the first answer, and from the moment in which its port is found closed until the next.
        """
        return self._returns.began_at

    def confirm_restart(self) -> None:
        """The last return was a restart after all: the index shows that the models are gone. Counted once."""
        self._returns.confirm_restart()

    def heard(self) -> None:
        """Triton has answered a call, be it with a refusal."""
        self._silence.end()

    def lost(self, failure: Exception) -> None:
        """A call found Triton away, or something else in its place."""
        if not self._is_told:
            log.warning("triton.away", target=self._target, cause=str(failure))
        self._is_told = True
        self.problem = f"Triton does not answer at {self._target}: {failure}"
        self._silence.note(failure)
        if isinstance(failure, PortClosed):
            self._returns.closed()
        self._break()
        TRITON_UP.set(0)

    async def _is_excused(self, failure: Exception, earlier: int) -> bool:
        """Whether the silence is that of a process that runs, and lists for us; `earlier`: how many listings were over when it began."""
        fell = self._fell_into_a_listing(failure, earlier)
        if not isinstance(failure, TritonSilent) or not (fell or self._listings.may_run()):
            return False
        if not await self._client.runs(GREETING_SECONDS):
            self._listings.hang()
            return False
        self._silence.end()
        return fell

    def _fell_into_a_listing(self, failure: Exception, earlier: int) -> bool:
        return isinstance(failure, TritonSilent) and self._listings.has_run_since(earlier)

    def _connected(self, is_connected: bool) -> None:
        if not is_connected:
            self._break()
        self._news.set()

    def _break(self) -> None:
        self._returns.broke()
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
        self._answered_at = self._time()
        if self.problem is not None:
            log.info("triton.answered", target=self._target)
        self._is_told = False
        self.problem = None
        TRITON_UP.set(1)
        self._answers.set()
        self._returns.answered(name)

    def _is_fresh(self) -> bool:
        return self._answered_at is not None and self._time() - self._answered_at < FRESH_SECONDS


async def _within(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after the time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return
