"""
What a load is waiting for now, in words, and how long it may wait; pauses between tries.

Code that waits says so, from any thread; a caller that gives up reads it. A load may wait for several things
at once (a pull reads many parts): the one without progress for the longest time is told, with its
last trouble. Decides nothing.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any


@dataclass(eq=False)
class Wait:
    """One thing that is waited for."""

    what: object
    """In words: `an answer of bucket 'b' at host`; follows `waiting for`. Never holds a secret."""
    clock: Callable[[], float]
    since: float
    trouble: str | None = None
    """What went wrong when it was tried last."""

    def progressed(self) -> None:
        """Something came: the wait begins anew, and earlier trouble is over."""
        self.since = self.clock()
        self.trouble = None


_INNERMOST: ContextVar[Wait | None] = ContextVar("wait", default=None)
"""Of the task, or thread, that asks."""


@contextmanager
def instead(what: object) -> Iterator[None]:
    """While inside, the innermost wait of this task is for something else: what is asked on the way to it."""
    wait = _INNERMOST.get() or Wait(what, float, 0.0)
    before, wait.what = wait.what, what
    try:
        yield
    finally:
        wait.what = before


class Waits:
    """All that one load waits for."""

    def __init__(self, clock: Callable[[], float], until: float = math.inf) -> None:
        """
        Args:
            clock: seconds, as the event loop's `time`; asked from any thread.
            until: by that clock, when the last caller that still waits gives up and says why.
        """
        self.clock = clock
        self.began = clock()
        self._until = until
        self._running: list[Wait] = []
        self._sharers: list[Waits] = []
        self._shared: Waits | None = None
        self.bytes_of_pull: Callable[[], tuple[int, int]] | None = None
        """Those that have come and those that are expected, while a pull runs. From any thread."""

    def progress(self) -> tuple[int, int]:
        """Bytes of the pull that runs now, also of a shared one: those that have come, and those that are expected. 0 without one."""
        told = (self._shared or self).bytes_of_pull
        return told() if told else (0, 0)

    @property
    def until(self) -> float:
        """May change while the load goes on: callers come and go. Of what several loads share: the latest of theirs."""
        return max((waits.until for waits in tuple(self._sharers)), default=self._until)

    @until.setter
    def until(self, until: float) -> None:
        self._until = until

    def left_seconds(self) -> float:
        """Until the end; 0 or less after it."""
        return self.until - self.clock()

    @contextmanager
    def on(self, what: object) -> Iterator[Wait]:
        """While inside, this is waited for."""
        wait = Wait(what, self.clock, self.clock())
        self._running.append(wait)
        outer = _INNERMOST.get()
        _INNERMOST.set(wait)
        try:
            yield wait
        finally:
            _INNERMOST.set(outer)
            self._running.remove(wait)

    def to_share(self) -> Waits:
        """For work that other loads may come to wait for as well, and that may go on when this load has gone."""
        made = Waits(self.clock, self.until)
        made.began = self.began
        return made

    @contextmanager
    def sharing(self, shared: Waits) -> Iterator[None]:
        """
        While inside, what the shared work waits for is waited for here, and the work may wait for as long as this
        load may.
        """
        shared._sharers.append(self)
        self._shared = shared
        try:
            yield
        finally:
            self._shared = None
            shared._sharers.remove(self)

    def silent_seconds(self) -> float:
        """For how long what is waited for now has shown no progress; of several things, the longest time."""
        now = self.clock()
        return now - min((wait.since for wait in tuple(self._running)), default=now)

    def words(self) -> str | None:
        """`waiting for … for 12.0 s (last trouble: …)`; None when nothing is waited for."""
        shared = self._shared
        wait = min(tuple(self._running), key=lambda wait: wait.since, default=None)
        if wait is None:
            return None if shared is None else shared.words()
        trouble = f" (last trouble: {wait.trouble})" if wait.trouble else ""
        return f"waiting for {wait.what} for {self.clock() - wait.since:.1f} s{trouble}"


def doubling(first_seconds: float, longest_seconds: float) -> Iterator[float]:
    """Endless pauses in seconds, each twice as long as the one before, up to the longest."""
    pause = first_seconds
    while True:
        yield pause
        pause = min(2 * pause, longest_seconds)


async def set_within(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after the time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


async def end(*tasks: asyncio.Task[Any] | None, seconds: float | None = None) -> None:
    """Cancel those that there are, and return when they have ended, or after the time."""
    if there := [task for task in tasks if task is not None]:
        for task in there:
            task.cancel()
        await asyncio.wait(there, timeout=seconds)
