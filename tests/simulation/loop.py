"""
An event loop in virtual time: nothing waits, and a seed decides which of the tasks that are ready runs next.

Whoever runs does so in the name of a `Life`: a process of the world that may die at any moment. Callbacks of a dead one
are dropped, so its tasks, timers and calls do nothing any more, as after `kill -9`.
"""

from __future__ import annotations

import asyncio
import contextvars
import heapq
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any


@dataclass(eq=False)
class Life:
    """One process, from its start to its death."""

    name: str
    is_alive: bool = True
    kill_after: int | None = None
    """So many operations on files, and the process dies in the middle of the next one."""
    is_faulty: bool = False
    """Whether its operations on files may fail."""
    tasks: list[asyncio.Task[Any]] = field(default_factory=list)

    def __repr__(self) -> str:
        return self.name


LIFE: contextvars.ContextVar[Life | None] = contextvars.ContextVar("life", default=None)
"""Who runs now; None: the world itself."""


KIND: contextvars.ContextVar[str | None] = contextvars.ContextVar("kind", default=None)
"""In the name of which kind of operation."""


PATIENCE_SECONDS = 4000.0
"""Longer than anything that may wait: budgets, undos, the longest delays."""
MOST_STEPS = 200_000
"""At one moment. The most that a history has taken is far below that."""


class StuckError(Exception):
    """Nothing is ready and no timer runs, or something is ready again and again: whoever waits will wait for ever."""


class _Task(asyncio.Task[Any]):
    number = 0


class VirtualLoop(asyncio.BaseEventLoop):
    """Runs on one thread and asks no operating system for anything."""

    def __init__(self, decide: random.Random) -> None:
        super().__init__()
        self._now = 1000.0
        self._clock_resolution = 1e-9
        self._decide = decide
        self.after_step: Callable[[], None] = lambda: None
        self.lag = 0.0
        """How often something that is ready is put off once more."""
        self.steps = 0
        self._moved_at = 0
        """Steps, when time last passed."""
        self.tasks = 0
        self.set_task_factory(_made)

    def time(self) -> float:
        return self._now

    def in_name_of(self, life: Life | None) -> contextvars.Context:
        """A context for callbacks of this life."""
        context = contextvars.Context()
        context.run(LIFE.set, life)
        return context

    def _run_once(self) -> None:
        ready: Any = self._ready  # type: ignore[attr-defined]
        timers: list[Any] = self._scheduled  # type: ignore[attr-defined]
        while not ready:
            if not timers:
                raise StuckError("nothing is ready, and no timer runs")
            if timers[0]._when > self._now:
                self._now, self._moved_at = timers[0]._when, self.steps
            self._take_due(timers, ready)
        if self.steps - self._moved_at > MOST_STEPS:
            raise StuckError(f"{MOST_STEPS} steps, and no time has passed: somebody asks again and again")
        self._take_due(timers, ready)
        batch = list(ready)
        ready.clear()
        if len(batch) > 1:
            _put_in_order(batch)
            self._decide.shuffle(batch)
        for place, handle in enumerate(batch):
            if not _is_wanted(handle):
                continue
            if self.lag and self._decide.random() < self.lag:
                ready.append(handle)
                continue
            handle._run()
            self.steps += 1
            self.after_step()
            if self._stopping:  # type: ignore[attr-defined]
                ready.extend(batch[place + 1 :])
                break

    def _take_due(self, timers: list[Any], ready: Any) -> None:
        while timers and timers[0]._when <= self._now:
            handle = heapq.heappop(timers)
            handle._scheduled = False
            if _is_wanted(handle):
                ready.append(handle)

    def _process_events(self, event_list: Any) -> None:
        raise NotImplementedError

    def _write_to_self(self) -> None:
        """Threads of the simulation run while the loop waits for them."""


def _is_wanted(handle: Any) -> bool:
    if handle._cancelled:
        return False
    life = handle._context.get(LIFE)
    return life is None or life.is_alive


def _put_in_order(batch: list[Any]) -> None:
    """Tasks by their age: the order in which a set wakes them differs from run to run."""
    numbers = [getattr(getattr(handle._callback, "__self__", None), "number", None) for handle in batch]
    places = [place for place, number in enumerate(numbers) if number is not None]
    if len(places) > 1:
        handles = sorted((numbers[place], place) for place in places)
        for place, handle in zip(places, [batch[old] for _, old in handles], strict=True):
            batch[place] = handle


def _made(loop: asyncio.AbstractEventLoop, work: Any, context: contextvars.Context | None = None) -> asyncio.Task[Any]:
    assert isinstance(loop, VirtualLoop)
    task = _Task(work, loop=loop, context=context)
    task.number = loop.tasks = loop.tasks + 1
    life = LIFE.get() if context is None else context.get(LIFE)
    if life is not None:
        life.tasks.append(task)
    return task


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.5)


async def within(work: Coroutine[Any, Any, None]) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await work
    except TimeoutError:
        return False
    return True
