"""
Triton's repository index: the one place that asks for it, how often, and what to do when that fails.

A listing holds the lock that inference needs, and Triton answers no other call meanwhile. So there is one question at
a time, shared by all who ask before it is sent. An answer is given only to those who asked before its question was
sent. A question that was sent goes on without its callers, since Triton goes on with it in any case.

After an answer Triton is owed a rest that is ten times as long as the quicker of the last two answers. CREDIT_SECONDS
of it may be owed when Triton is asked again, so that ten unloads in a row need not wait: a listing takes a tenth of
Triton's time at most, however many there are. A caller that waits for an unload must still see the index about three
times within its time, so for it the rest ends after 40 s. Beyond that the share is told.

One bad entry in the repository folder breaks the index for every model: a dangling link, a name that is not UTF-8. So
after a listing that failed the folder is swept; a directory that vanished during the listing needs no more than
another question.
"""

from __future__ import annotations

import asyncio
import math
from copy import copy

import structlog

from adapter.errors import AdapterError, WrongServer
from adapter.model import ServerModel
from adapter.telemetry.metrics import INDEX_POLLS, INDEX_SECONDS
from adapter.triton.client import CallError, TritonAway
from adapter.triton.connection import ASK_SECONDS, Connection
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.waits import end
from adapter.workers import retrieve

LEAST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.001, 0.005, 1.0
PAUSE_SECONDS = 0.2
"""After a listing that failed."""
LIVE_SECONDS, LIVE_FACTOR = 10.0, 4
"""During a listing Triton may be silent for 10 s, or four times as long as the listing before took."""
REST_FACTOR = 10
CREDIT_SECONDS = 0.5
"""Of rest: it stands for 50 ms of listing, ten answers of a Triton with 1,000 models."""
LONGEST_REST_SECONDS = 40.0
"""With answers of 10 s that is three looks within UNLOAD_TIMEOUT_SECONDS (170 s by default)."""
SLOW_SECONDS = 10.0
"""An answer that takes longer is called slow while it is waited for."""
FAILED_SECONDS = 10.0
"""A listing that failed is told for so long; callers that need the index ask again earlier. While it is told, comparisons ask nothing."""

log = structlog.stdlib.get_logger(__name__)


class Index:
    """Asks for the index, again where that helps."""

    def __init__(self, connection: Connection, repository: Repository) -> None:
        self._connection = connection
        self._repository = repository
        self._time = asyncio.get_running_loop().time
        self._turn = asyncio.Lock()
        self._next: asyncio.Task[list[ServerModel] | None] | None = None
        """A question that is not sent yet: who asks now gets its answer."""
        self._sent: asyncio.Task[list[ServerModel] | None] | None = None
        self._began = math.inf
        """When the question under way was sent; infinite where there is none."""
        self._seconds = 0.0
        """The newest answer took so long."""
        self._ended_at = 0.0
        self._owed_until = 0.0
        """When Triton will have had the rest for all its answers."""
        self._failure: str | None = None
        """Why the last listing failed; None after a listing that did not."""
        INDEX_SECONDS.set_function(lambda: max(self._seconds, self._time() - self._began))

    @property
    def problem(self) -> str | None:
        """Why there is no index now: the last listing has failed, or one takes long. From any thread."""
        seconds = self._time() - self._began
        if seconds > SLOW_SECONDS:
            return f"Triton has needed {seconds:.0f} s to list its model repository, and has not done so yet"
        return self._failure if self._time() < self._ended_at + FAILED_SECONDS else None

    @property
    def notice(self) -> str | None:
        """That the index is slow, in words. From any thread."""
        if REST_FACTOR * self._seconds <= LONGEST_REST_SECONDS:
            return None
        share = self._seconds / (self._seconds + LONGEST_REST_SECONDS)
        needed = f"it has needed {self._seconds:.0f} s to list its model repository"
        return f"Triton is slow: {needed}, which takes {share:.0%} of its time while unloads wait for it"

    async def ask(self) -> list[ServerModel] | None:
        """All rows, by a question that is not sent yet; None: it failed. Raises WrongServer: the index is restricted."""
        if self._next is None:
            self._next = asyncio.create_task(self._question(), name="question for Triton's index")
            self._next.add_done_callback(retrieve)
        try:
            return await asyncio.shield(self._next)
        except WrongServer as wrong:
            raise copy(wrong) from wrong  # each caller notes in its own error which model it was

    async def rows(self, name: str) -> list[ServerModel] | None:
        """As `ask`, of one name of Triton's."""
        rows = await self.ask()
        return None if rows is None else [row for row in rows if row.name == name]

    async def pause(self, since: float) -> None:
        """
        Between two looks of one who waits since then: half of that time at most, 5 ms to 1 s.

        All who wait look at the same times, so one answer is for many: looks at times of their own made the 99th percentile of
        inference beside 50 unloads four times as long.
        """
        now = self._time()
        step = 2.0 ** math.floor(math.log2(min(max((now - since) / 2, FIRST_PAUSE_SECONDS), LONGEST_PAUSE_SECONDS)))
        await asyncio.sleep(max(step - now % step, LEAST_PAUSE_SECONDS))

    async def listing(self) -> list[ServerModel]:
        """As `ask`; waits for a Triton that is away, or cannot list its folder."""
        while (rows := await self.ask()) is None:
            await self._connection.wait()
            await asyncio.sleep(PAUSE_SECONDS)
        return rows

    async def close(self) -> None:
        """Ask no more."""
        await end(self._sent, self._next)

    async def _question(self) -> list[ServerModel] | None:
        """Asked when the one before has its answer, and Triton had its rest. None: it failed."""
        async with self._turn:
            rest_until = min(self._owed_until - CREDIT_SECONDS, self._ended_at + LONGEST_REST_SECONDS)
            await asyncio.sleep(rest_until - self._time())
            self._sent, self._next = self._next, None
            if not await self._connection.answers():
                return None
            INDEX_POLLS.inc()
            self._began = self._time()
            self._connection.deadline_seconds = max(LIVE_SECONDS, LIVE_FACTOR * self._seconds)
            try:
                rows = await self._connection.client.index(None)  # whether Triton hangs is what ServerLive tells
            except TritonAway as away:
                self._connection.lost(away)
                return None
            except CallError as failure:
                await self._mend(one_line(str(failure)))
                return None
            finally:
                self._connection.deadline_seconds = ASK_SECONDS
                now, before = self._time(), self._seconds
                self._ended_at, self._seconds, self._began = now, now - self._began, math.inf
                rest = REST_FACTOR * min(before or math.inf, self._seconds)  # one may be late because this process was busy
                self._owed_until = now + rest + min(max(self._owed_until - now, 0.0), CREDIT_SECONDS)
            self._failure = None
            return rows

    async def _mend(self, cause: str) -> None:
        """After a listing that failed."""
        if self._failure is None:
            log.warning("index.failed", cause=cause)
        self._failure = f"Triton cannot list its model repository: {cause}"
        try:
            await self._repository.sweep()
        except AdapterError as failure:
            self._failure = failure.text
