"""
Whether Triton answers, waiting until it does, and whether it is still the same process.

Triton is *away* when it is stopped, starting or exiting, or when it accepts connections and does not answer (it
hangs). A connection that ends and a question without an answer are *breaks*. The first answer after a break is a
*return*: what Triton holds may be gone. A return proves another process where the port was closed in between, or
where the server's name (`--id`) is another one; in all other cases the index shows it (`confirm_restart`). Knows
nothing of models.

Every call comes after a look at the connection (`wait`, `answers`), so no break is missed.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import TypeVar

import structlog

from adapter.errors import WrongServer
from adapter.telemetry.metrics import TRITON_RESTARTS, TRITON_UP
from adapter.triton.client import CallError, PortClosed, TritonAway, TritonClient, TritonSilent
from adapter.waits import end

ASK_SECONDS = 1.0
"""Deadline of ServerLive, which takes 0.15 ms."""
WATCH_SECONDS = 0.8
"""Between questions while Triton answers: a death is noticed within a second, a hang within two."""
PAUSE_SECONDS = 0.1
"""Between questions while Triton is away."""

T = TypeVar("T")
log = structlog.stdlib.get_logger(__name__)


class Connection:
    """Asks Triton whether it is live, and remembers the answer. Times are those of the event loop."""

    def __init__(self, client: TritonClient) -> None:
        self.client = client
        self.deadline_seconds = ASK_SECONDS
        """Of a question. Longer while Triton lists its repository, as it then answers no other call."""
        self.problem: str | None = f"Triton at {client.target} was not asked yet"
        """Why Triton does not answer; None where it has answered, and nothing has broken since. From any thread."""
        self.version = ""
        """Of the Triton that answered last."""
        self.began_at = math.inf
        """
        When the Triton that is there now first answered: a call that was sent earlier is not in it.

        Infinite before the first answer, and after the port was found closed.
        """
        self._time = asyncio.get_running_loop().time
        self._has_answered = False
        """Since the last break."""
        self._silent_since = math.inf
        """When Triton last answered, be it with a refusal, or was first silent; infinite while its port is closed."""
        self._asking: asyncio.Task[bool] | None = None
        self._name: str | None = None
        """Of the Triton that answered last: `--id`, without which all have the same. None before the first answer."""
        self._is_told = False
        """The log says that Triton is away."""
        self._is_counted = True
        """The last return is in the metric, if it was a restart."""
        TRITON_UP.set_function(lambda: self.problem is None)
        self.returns = asyncio.Queue[bool]()
        """Of each return that is not told yet: whether it is certainly another process."""

    # ---- whether Triton answers

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
        """Whether Triton answers, as the last question has shown; asked where a connection has ended since. Never raises."""
        is_known = self._has_answered and self.client.is_connected and (self._asking is None or self._asking.done())
        return is_known or await self.look()

    async def look(self) -> bool:
        """Ask once, in one question with all who ask meanwhile. Never raises."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="question for Triton")
        return await asyncio.shield(self._asking)

    async def retry_while_away(self, call: Callable[[], Awaitable[T]]) -> T:
        """Wait for Triton, then call; again where it was away after all. Raises everything but TritonAway."""
        while True:
            await self.wait()
            try:
                return await call()
            except TritonSilent:
                pass  # a listing may have held it up; whether Triton hangs is what ServerLive tells
            except TritonAway as away:
                self.lost(away)
            await asyncio.sleep(PAUSE_SECONDS)

    async def watch(self) -> None:
        """For ever: notice that Triton goes, hangs and comes back, without a call."""
        while True:
            is_live = await self.look()
            await asyncio.sleep(WATCH_SECONDS if is_live else PAUSE_SECONDS)

    def lost(self, failure: Exception) -> None:
        """A call found Triton away, or another server in its place."""
        if not self._is_told:
            log.warning("triton.away", target=self.client.target, cause=str(failure))
        self._is_told = True
        self.problem = f"Triton does not answer at {self.client.target}: {failure}"
        self._has_answered = False
        if isinstance(failure, PortClosed):
            self._silent_since = self.began_at = math.inf
        elif isinstance(failure, TritonAway):
            self._silent_since = min(self._silent_since, self._time())
        else:
            self._silent_since = self._time()

    async def close(self) -> None:
        """Ask no more."""
        await end(self._asking)

    # ---- whether it is the same process

    def confirm_restart(self) -> None:
        """The last return was a restart: the index shows that the models are gone. Counted once."""
        self.began_at = max(self.began_at, self._time())
        if not self._is_counted:
            self._is_counted = True
            TRITON_RESTARTS.inc()
            log.warning("triton.restarted", target=self.client.target)

    # ---- asking

    async def _ask(self) -> bool:
        if not self.client.is_connected:
            self._has_answered = False
        name, seconds = self._name, self.deadline_seconds
        try:
            await self.client.live(seconds)
            if not self._has_answered:  # asked when the break was seen: the answer before may be older
                name, self.version = await self.client.metadata(seconds)
        except (CallError, WrongServer) as failure:
            self.lost(failure)
            return False
        now = self._silent_since = self._time()
        if not self.client.is_connected:
            return False
        if self.problem is not None:
            log.info("triton.answered", target=self.client.target)
        self._is_told, self.problem = False, None
        if not self._has_answered and self._name is not None:
            self._is_counted = False
            is_another = self.began_at == math.inf or name != self._name
            if is_another:
                self.confirm_restart()
            self.returns.put_nowait(is_another)
        self.began_at = min(self.began_at, now)
        self._has_answered, self._name = True, name
        return True
