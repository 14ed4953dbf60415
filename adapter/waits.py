"""
What a load is waiting for now, in words, and how long it may wait.

Whoever waits says so, from any thread; whoever gives up reads it. A load may wait for several things
at once (a pull reads many parts): the one without progress for the longest time is told, with its
last trouble. Decides nothing.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(eq=False)
class Wait:
    """One thing that is waited for."""

    what: str
    """`an answer of bucket 'b' at host`; follows `waiting for`. Never holds a secret."""
    clock: Callable[[], float]
    since: float
    trouble: str | None = None
    """What went wrong when it was tried last."""

    def progressed(self) -> None:
        """Something came: the wait begins anew, and earlier trouble is over."""
        self.since = self.clock()
        self.trouble = None


class Waits:
    """All that one load waits for."""

    def __init__(self, clock: Callable[[], float], until: float = math.inf) -> None:
        """
        Args:
            clock: seconds, as the event loop's `time`; asked from any thread.
            until: by that clock, when whoever still waits gives up by himself and says why.
        """
        self.clock = clock
        self.began = clock()
        self.until = until
        """May change while the load goes on: callers come and go."""
        self._lock = threading.Lock()
        self._running: list[Wait] = []

    def left_seconds(self) -> float:
        """Until the end; 0 or less after it."""
        return self.until - self.clock()

    @contextmanager
    def on(self, what: str) -> Iterator[Wait]:
        """While inside, this is waited for."""
        wait = Wait(what, self.clock, self.clock())
        with self._lock:
            self._running.append(wait)
        try:
            yield wait
        finally:
            with self._lock:
                self._running.remove(wait)

    def words(self) -> str | None:
        """`waiting for … for 12.0 s (last trouble: …)`; None when nothing is waited for."""
        with self._lock:
            wait = min(self._running, key=lambda wait: wait.since, default=None)
        if wait is None:
            return None
        trouble = f" (last trouble: {wait.trouble})" if wait.trouble else ""
        return f"waiting for {wait.what} for {self.clock() - wait.since:.1f} s{trouble}"
