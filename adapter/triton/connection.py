"""
Whether Triton answers, waiting until it does, and whether it is still the same process.

Triton is *away* when it is stopped, starting or exiting, or when it accepts connections and does not answer (it
hangs). A connection that ends and a question without an answer are *breaks*. The first answer after a break is a
*return*: what Triton holds may be gone. A return proves another process where the port was closed in between, or
where the server's name (`--id`) is another one; in all other cases the index shows it (`confirm_restart`). Knows
nothing of models.

While Triton lists its repository it answers no other call (one thread serves all but inference). A question during a
listing of ours has a longer deadline, and a listing begins when no question is under way.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

import structlog

from adapter.errors import WrongServer
from adapter.telemetry.metrics import TRITON_RESTARTS, TRITON_UP
from adapter.triton.client import (
    CallError,
    PortClosed,
    TritonAway,
    TritonClient,
    TritonSilent,
    TritonStopping,
)
from adapter.waits import set_within

ASK_SECONDS = 1.0
"""Deadline of ServerLive, which takes 0.15 ms."""
LISTING_SECONDS, LISTING_FACTOR = 10.0, 4
"""During a listing the deadline is 10 s, or four times as long as the listing before took."""
FRESH_SECONDS = 2.6
"""An answer counts for so long without asking again: a little longer than the watch needs to notice a hang."""
WATCH_SECONDS = 1.5
"""Between questions while Triton answers: with the deadline of one, a hang is noticed within 2.5 s."""
REST_SECONDS = 0.02
"""After each question of the watch: a peer may take connections and break them at once."""
PAUSE_SECONDS = 0.1
"""Between questions while Triton is away."""

T = TypeVar("T")
log = structlog.stdlib.get_logger(__name__)


class Connection:
    """Asks Triton whether it is live, and remembers the answer. Times are those of the event loop."""

    def __init__(self, client: TritonClient) -> None:
        self.client = client
        self._target = client.target
        self._time = asyncio.get_running_loop().time
        self.problem: str | None = f"Triton at {self._target} was not asked yet"
        self.began_at: float | None = None
        """
        When the Triton that is there now first answered: a call that was sent earlier is not in it.

        None before the first answer, and after the port was found closed.
        """
        self._answered_at = -math.inf
        """When Triton last answered; never since the last break."""
        self._silent_since = math.inf
        """When Triton last answered, be it with a refusal, or was first silent; infinite while its port is closed."""
        self._is_told = False
        """The log says that Triton is away."""
        self._asking: asyncio.Task[bool] | None = None
        self._news = asyncio.Event()
        """Set when a connection comes or goes."""
        self._breaks = 0
        self._name: str | None = None
        self.version = ""
        """Of the Triton that answered last; the name is `--id`, without which all have the same. None before the first answer."""
        self._is_another = False
        """The process that answers next is another one: the port was closed."""
        self.restarts = 0
        """How often Triton has certainly become another process, a death included that nothing has followed yet."""
        self._returns = asyncio.Queue[bool]()
        """Not told yet: whether each is certainly another process."""
        self._is_counted = True
        """The last return is in the metric, if it was a restart."""
        self._listed_at = -math.inf
        """When the last listing ended; infinite during one."""
        self._listing_seconds = 0.0

    # ---- whether Triton answers

    @property
    def is_live(self) -> bool:
        """Triton has answered, and nothing has broken since. From any thread."""
        return self.problem is None

    def silent_seconds(self) -> float:
        """Since Triton's last answer, refusals included; 0 while its port is closed. From any thread."""
        return max(0.0, self._time() - self._silent_since)

    async def wait(self) -> None:
        """Return as soon as Triton answers; at once if it just did."""
        while True:
            if await self.answers():
                return
            await asyncio.sleep(PAUSE_SECONDS)

    async def answers(self) -> bool:
        """Whether Triton answers now: asked once, unless it just did. Never raises."""
        return self._time() - self._answered_at < FRESH_SECONDS or await self.look()

    async def look(self) -> bool:
        """Ask once, in one question with all who ask meanwhile. Never raises."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="question for Triton")
        return await asyncio.shield(self._asking)

    async def retry_while_away(self, call: Callable[[], Awaitable[T]]) -> T:
        """Wait for Triton, then call; again where it was away after all. Raises everything but TritonAway."""
        while True:
            await self.wait()
            began = self._time()
            try:
                return await call()
            except TritonAway as away:
                if not isinstance(away, TritonSilent) or self._listed_at < began:
                    self.lost(away)
            await asyncio.sleep(PAUSE_SECONDS)

    async def watch(self) -> None:
        """For ever: notice that Triton goes, hangs and comes back, without a call."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.client.follow_connection(self._connected), name="connection to Triton")
            while True:
                self._news.clear()
                is_live = await self.look()
                await asyncio.sleep(REST_SECONDS)
                await set_within(self._news, (WATCH_SECONDS if is_live else PAUSE_SECONDS) - REST_SECONDS)

    def lost(self, failure: Exception) -> None:
        """A call found Triton away, or another server in its place."""
        if not self._is_told:
            log.warning("triton.away", target=self._target, cause=str(failure))
        self._is_told = True
        self.problem = f"Triton does not answer at {self._target}: {failure}"
        if isinstance(failure, PortClosed):
            self._silent_since, self.began_at = math.inf, None
            if self._name is not None and not self._is_another:
                self._is_another = True
                self.restarts += 1
        elif self._silent_since == math.inf or isinstance(failure, TritonStopping) or not isinstance(failure, TritonAway):
            self._silent_since = self._time()
        self._break()
        TRITON_UP.set(0)

    @asynccontextmanager
    async def listing(self) -> AsyncIterator[None]:
        """Inside, Triton is asked for its index; one at a time."""
        if self._asking is not None and not self._asking.done():
            await asyncio.wait({self._asking})  # its deadline would be too short for the listing
        began, self._listed_at = self._time(), math.inf
        try:
            yield
        finally:
            self._listed_at = self._time()
            self._listing_seconds = self._listed_at - began

    async def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.wait({self._asking})

    # ---- whether it is the same process

    async def returned(self) -> bool:
        """
        Wait for the next return, or take those that came while no caller waited.

        Returns:
            Whether one of them is certainly another process.
        """
        is_another = await self._returns.get()
        while not self._returns.empty():
            is_another |= self._returns.get_nowait()
        return is_another

    def confirm_restart(self) -> None:
        """The last return was a restart: the index shows that the models are gone. Counted once."""
        if self.began_at is not None:
            self.began_at = self._time()
        if not self._is_counted:
            self._is_counted = True
            TRITON_RESTARTS.inc()
            log.warning("triton.restarted", target=self._target)

    # ---- asking

    async def _ask(self) -> bool:
        breaks, name = self._breaks, self._name
        is_listing = self._listed_at == math.inf
        seconds = max(LISTING_SECONDS, LISTING_FACTOR * self._listing_seconds) if is_listing else ASK_SECONDS
        try:
            await self.client.live(seconds)
            if self._answered_at == -math.inf:
                name, self.version = await self.client.metadata(seconds)
        except (CallError, WrongServer) as failure:
            self.lost(failure)
            return False
        now = self._silent_since = self._time()
        if breaks != self._breaks:
            return False  # the answer may be older than the break
        if self.problem is not None:
            log.info("triton.answered", target=self._target)
        self._is_told, self.problem = False, None
        TRITON_UP.set(1)
        if self.began_at is None:
            self.began_at = now
        if self._answered_at == -math.inf and self._name is not None:
            self._note_return(has_other_name=name != self._name)
        self._answered_at, self._name = now, name
        return True

    def _note_return(self, *, has_other_name: bool) -> None:
        is_another = self._is_another or has_other_name
        self.restarts += is_another and not self._is_another
        self._is_another = self._is_counted = False
        if is_another:
            self.confirm_restart()
        self._returns.put_nowait(is_another)

    def _connected(self, is_connected: bool) -> None:
        if not is_connected:
            self._break()
        self._news.set()

    def _break(self) -> None:
        self._breaks += 1
        self._answered_at = -math.inf
