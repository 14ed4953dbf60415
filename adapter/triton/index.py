"""
Triton's repository index: the one place that asks for it, and what to do when that fails.

A listing holds the lock that inference needs, and Triton answers no other call meanwhile. So there is one question at a time,
shared by all who ask before it is sent, and a rest after it (`throttle`). An answer is given only to those who asked before its
question was sent. A question that was sent goes on without its callers, since Triton goes on with it in any case.

One bad entry in the repository folder breaks the index for every model: a dangling link, a name that is not UTF-8. So after a
listing that failed the folder is swept; a directory that vanished during the listing needs no more than another question.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from copy import copy
from functools import cached_property

import structlog

from adapter.errors import AdapterError, ServerError, WrongServer
from adapter.inventory import by_owner
from adapter.model import ServerModel, owner_of
from adapter.telemetry.metrics import INDEX_POLLS, INDEX_SECONDS
from adapter.triton.client import CallError, TritonAway, TritonClient, TritonSilent
from adapter.triton.connection import Connection
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.triton.throttle import SLOW_SECONDS, IndexThrottle
from adapter.waits import doubling
from adapter.workers import retrieve

ATTEMPTS = 5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 1.0
DEADLINE_SECONDS = 600.0
"""Of a question; doubled after each one that has got no answer."""
AGAIN_SECONDS = 5.0
"""After a listing that failed Triton is asked again so soon, where there are no other callers."""
SLICE_SECONDS = 1.0
"""Of a rest: Triton may be another process by then, which needs none."""
CLOCK_SECONDS = 1e-6
"""A clock may not show less."""

log = structlog.stdlib.get_logger(__name__)


class Listing:
    """An answer: all rows of the index."""

    def __init__(self, rows: list[ServerModel], sent_at: float) -> None:
        self.rows = rows
        self.sent_at = sent_at
        """When Triton was asked, by the clock of the loop."""

    def of(self, model_ids: Collection[str]) -> list[ServerModel]:
        """The rows of these models, inner ones included."""
        return [row for model_id in model_ids for row in self._by_owner.get(model_id, ())]

    def named(self, name: str) -> list[ServerModel]:
        """The rows of one name of Triton's."""
        return [row for row in self._by_owner.get(owner_of(name), ()) if row.name == name]

    @cached_property
    def _by_owner(self) -> dict[str, list[ServerModel]]:
        return by_owner(self.rows)


class _Question:
    """One call of RepositoryIndex, with the rest before it."""

    def __init__(self) -> None:
        self.callers = 0
        self.is_urgent = asyncio.Event()
        self.task: asyncio.Task[Listing | None] | None = None


class Index:
    """Asks for the index, again where that helps."""

    def __init__(self, *, client: TritonClient, connection: Connection, repository: Repository) -> None:
        self._client = client
        self._connection = connection
        self._repository = repository
        self._time = asyncio.get_running_loop().time
        self._throttle = IndexThrottle()
        self._restarts = 0
        """Of Triton, as the throttle knows them."""
        self._deadline_seconds = DEADLINE_SECONDS
        self._turn = asyncio.Lock()
        self._next: _Question | None = None
        """Not sent yet."""
        self._sent: _Question | None = None
        self._sent_at = 0.0
        self._tasks: set[asyncio.Task[Listing | None]] = set()
        self._latest: Listing | None = None
        self._answered = asyncio.Event()
        """Set with the next answer, then replaced."""
        self._failure: str | None = None
        """Why the last listing failed; None after a listing that did not."""
        self._has_failed = asyncio.Event()
        INDEX_SECONDS.set_function(lambda: max(self._throttle.seconds, self._under_way_seconds()))

    @property
    def problem(self) -> str | None:
        """Why there is no index now: the last listing failed, or one with callers takes long. From any thread."""
        sent = self._sent
        return (self._slow() if sent is not None and sent.callers else None) or self._failure

    @property
    def notice(self) -> str | None:
        """That the index is slow, in words. From any thread."""
        return self._slow() or self._throttle.notice

    async def ask(self, *, can_wait: bool = False) -> Listing | None:
        """
        The answer to a question that is not sent yet; None: it failed.

        Args:
            can_wait: Triton has its whole rest before, however long the last answer took.

        Raises:
            WrongServer: Triton restricts the index.
            AdapterError: the folder could not be swept after a listing that failed.
        """
        question = self._next or self._begin()
        question.callers += 1
        if not can_wait:
            question.is_urgent.set()
        assert question.task is not None  # noqa: S101 - _begin has set it
        try:
            return await asyncio.shield(question.task)
        except AdapterError as error:
            raise copy(error) from error  # each caller notes in its own error which model it was
        finally:
            question.callers -= 1
            if not question.callers and question is self._next:
                self._next = None
                question.task.cancel()

    async def after(self, moment: float, due: float) -> Listing | None:
        """An answer to a question that was sent after the moment: of another caller, or, when it is due, of this one. As `ask`."""
        with suppress(TimeoutError):
            async with asyncio.timeout_at(due):
                while True:
                    if self._latest is not None and self._latest.sent_at > moment:
                        return self._latest
                    await self._answered.wait()
        return await self.ask()

    async def listing(self, *, can_wait: bool = False) -> Listing:
        """As `ask`; waits for a Triton that is away, or cannot list its folder."""
        pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while (listing := await self.ask(can_wait=can_wait)) is None:
            await self._connection.wait()
            await asyncio.sleep(next(pauses))
        return listing

    async def lists(self, name: str) -> bool:
        """
        Whether there is a row for a directory that was just made. Waits for a Triton that is away or slow.

        Raises:
            ServerError: Triton answers, but cannot list its folder.
        """
        answers = 0
        while answers < ATTEMPTS:
            await self._connection.wait()
            listing = await self.ask()
            if listing is not None and listing.named(name):
                return True
            answers += listing is not None or self._failure is not None
            await asyncio.sleep(FIRST_PAUSE_SECONDS)
        if self._failure is not None:
            raise ServerError(self._failure)
        return False

    async def reason(self, name: str) -> str:
        """Why the last load of this name failed."""
        reasons = [one_line(row.reason) for row in (await self.listing()).named(name) if row.reason]
        return "; ".join(dict.fromkeys(reasons)) or one_line("")

    async def watch(self) -> None:
        """For ever: ask again after a listing that failed, so that `problem` ends with its cause."""
        while True:
            await self._has_failed.wait()
            await asyncio.sleep(AGAIN_SECONDS)
            if self._failure is not None:
                try:
                    await self.ask(can_wait=True)
                except AdapterError as error:
                    log.debug("index.unknown", cause=error.text)
                except Exception:
                    log.exception("index.crashed")

    async def close(self) -> None:
        """Ask no more; callers that still wait are cancelled."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # ---- one question

    def _begin(self) -> _Question:
        question = self._next = _Question()
        question.task = task = asyncio.create_task(self._answer(question), name="question for Triton's index")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(retrieve)
        return question

    async def _answer(self, question: _Question) -> Listing | None:
        async with self._turn:
            try:
                await self._rest(question)
                is_live = await self._connection.answers()
            finally:
                if self._next is question:
                    self._next = None
            if not is_live:
                return None
            self._sent = question
            try:
                return await self._asked()
            finally:
                self._sent = None

    async def _rest(self, question: _Question) -> None:
        while True:
            if self._restarts != self._connection.restarts:
                self._restarts = self._connection.restarts
                self._throttle.forget()
            left = self._throttle.due(can_wait=not question.is_urgent.is_set()) - self._time()
            if left < CLOCK_SECONDS:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(min(left, SLICE_SECONDS)):
                    await (asyncio.sleep(left) if question.is_urgent.is_set() else question.is_urgent.wait())

    async def _asked(self) -> Listing | None:
        connection, began = self._connection, self._time()
        self._sent_at = began
        INDEX_POLLS.inc()
        try:
            with connection.listing():
                rows = await self._client.index(self._deadline_seconds)
        except TritonSilent:
            log.warning("index.expired", seconds=self._deadline_seconds)
            self._deadline_seconds *= 2
            return None
        except TritonAway as away:
            connection.lost(away)
            return None
        except WrongServer:
            connection.heard()
            raise
        except CallError as failure:
            connection.heard()
            self._fail(one_line(str(failure)))
            await self._repository.sweep()
            return None
        finally:
            self._throttle.ended(began, self._time())
        connection.heard()
        if self._time() - began < DEADLINE_SECONDS:
            self._deadline_seconds = DEADLINE_SECONDS
        self._failure = None
        self._has_failed.clear()
        listing = self._latest = Listing(rows, began)
        answered, self._answered = self._answered, asyncio.Event()
        answered.set()
        return listing

    def _fail(self, cause: str) -> None:
        problem = f"Triton cannot list its model repository: {cause}"
        if self._failure != problem:
            log.warning("index.failed", cause=cause)
        self._failure = problem
        self._has_failed.set()

    def _slow(self) -> str | None:
        seconds = self._under_way_seconds()
        if seconds <= SLOW_SECONDS:
            return None
        return f"Triton has needed {seconds:.0f} s to list its model repository, and has not done so yet"

    def _under_way_seconds(self) -> float:
        """How long the question under way has been without an answer; 0 where there is none. From any thread."""
        return 0.0 if self._sent is None else self._time() - self._sent_at
