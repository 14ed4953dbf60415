"""
One question for Triton's index at a time, shared by all who ask before it is sent.

Nobody gets an answer whose question is older than his own. Between two questions Triton has a rest (`pace`). Each is sent
when Triton has just answered something else, so a Triton that hangs is met with a question that has a short deadline. One
that was sent goes on without those who asked: Triton would go on with it anyhow, and the next one must not come upon it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from copy import copy
from dataclasses import dataclass, field

from adapter.errors import AdapterError
from adapter.inventory import by_owner
from adapter.model import ServerModel
from adapter.triton.pace import Pace
from adapter.triton.presence import Presence
from adapter.workers import retrieve

SLICE_SECONDS = 1.0
"""Of a rest: Triton may be another process by then, and needs none."""
CLOCK_SECONDS = 1e-6
"""What is left of a rest below this is no rest: a clock may not tell it."""

Names = frozenset[str] | None
"""Of models; None for all."""


class Answer:
    """What a question has brought, for all who share it."""

    def __init__(self, rows: list[ServerModel]) -> None:
        self.rows = rows
        self._by_owner: dict[str, list[ServerModel]] | None = None

    def of(self, model_ids: Iterable[str]) -> list[ServerModel]:
        """The rows of these models and of their inner ones; grouped once."""
        if self._by_owner is None:
            self._by_owner = by_owner(self.rows)
        return [row for model_id in model_ids for row in self._by_owner.get(model_id, ())]


@dataclass(eq=False)
class _Question:
    """One call of RepositoryIndex, and what comes before it."""

    sharers: set[Callable[[], Names]] = field(default_factory=set)
    """What each of them wants to know, asked when the question is sent."""
    is_urgent: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Answer | None] = field(init=False)

    def names(self) -> Names:
        wanted = [choose() for choose in self.sharers]
        return None if None in wanted else frozenset().union(*(names for names in wanted if names))


class Questions:
    """Sends them, one after the other."""

    def __init__(self, *, presence: Presence, pace: Pace, send: Callable[[Names], Awaitable[Answer | None]]) -> None:
        """
        Args:
            presence: says whether Triton answers now.
            pace: says how long Triton is left alone before the next one.
            send: asks Triton for the rows of these names; None: no answer.
        """
        self._presence = presence
        self._pace = pace
        self._send = send
        self._turn = asyncio.Lock()
        self._next: _Question | None = None
        """Not sent yet, so that others may share it."""
        self._sent: _Question | None = None
        self._tasks: set[asyncio.Task[Answer | None]] = set()
        self._restarts = 0

    @property
    def is_waited_for(self) -> bool:
        """Whether somebody waits for the one that was sent. From any thread."""
        sent = self._sent
        return sent is not None and bool(sent.sharers)

    async def ask(self, choose: Callable[[], Names], *, can_wait: bool = False) -> Answer | None:
        """What a question brings that is not sent yet; None: no answer."""
        question = self._next or self._begin()
        question.sharers.add(choose)
        if not can_wait:
            question.is_urgent.set()
        try:
            return await asyncio.shield(question.task)
        except AdapterError as error:
            raise copy(error) from error  # each caller notes in his own which model it was
        finally:
            question.sharers.remove(choose)
            if not question.sharers and question is self._next:
                self._next = None
                question.task.cancel()

    async def close(self) -> None:
        """Ask no more; whoever still waits is cancelled."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self) -> _Question:
        question = self._next = _Question()
        question.task = asyncio.create_task(self._answer(question), name="question for Triton's index")
        self._tasks.add(question.task)
        question.task.add_done_callback(self._ended)
        return question

    def _ended(self, task: asyncio.Task[Answer | None]) -> None:
        self._tasks.discard(task)
        retrieve(task)

    async def _answer(self, question: _Question) -> Answer | None:
        async with self._turn:
            try:
                await self._rest(question)
                is_live = await self._presence.answers()
            finally:
                if self._next is question:
                    self._next = None
            if not is_live:
                return None
            names = question.names()
            if names is not None and not names:
                return Answer([])
            self._sent = question
            try:
                return await self._send(names)
            finally:
                self._sent = None

    async def _rest(self, question: _Question) -> None:
        while True:
            if self._restarts != self._presence.restarts:
                self._restarts = self._presence.restarts
                self._pace.forget()
            left = self._pace.due(can_wait=not question.is_urgent.is_set()) - _now()
            if left < CLOCK_SECONDS:
                return
            try:
                async with asyncio.timeout(min(left, SLICE_SECONDS)):
                    await (asyncio.sleep(left) if question.is_urgent.is_set() else question.is_urgent.wait())
            except TimeoutError:
                continue


def _now() -> float:
    return asyncio.get_running_loop().time()
