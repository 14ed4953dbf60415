"""
Stops that are set when their time is up: one thread for all of them.

A blocked read ends at its timeout or by a stop; where the one is too long, the other needs a clock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from adapter.workers import Stop, Workers


class Bound(Stop):
    """A stop that is set with another one, or when its time is up."""

    def __init__(self, alarms: Alarms, seconds: float) -> None:
        super().__init__()
        self.at = time.monotonic() + seconds
        self._alarms = alarms

    def lift(self) -> None:
        """Let the time be over without effect: what was to come has come."""
        self._alarms.forget(self)


class Alarms:
    """The bounds that are running. Call `close` at the end."""

    def __init__(self) -> None:
        """
        Raises:
            StartError: the process cannot have one more thread.
        """
        self._changed = threading.Condition()
        self._running: set[Bound] = set()
        self._is_open = True
        self._worker = Workers("alarm", 1)
        self._worker.start(lambda _: self._watch())

    @contextmanager
    def within(self, stop: Stop, seconds: float) -> Iterator[Bound]:
        """A bound of so many seconds, which nobody keeps afterwards."""
        bound = Bound(self, seconds)
        with stop.waking(bound.set):
            with self._changed:
                self._running.add(bound)
                self._changed.notify()
            try:
                yield bound
            finally:
                self.forget(bound)

    def forget(self, bound: Bound) -> None:
        """Its time means nothing any more."""
        with self._changed:
            self._running.discard(bound)

    def close(self) -> None:
        """End the thread; bounds that run are never set by it."""
        with self._changed:
            self._is_open = False
            self._changed.notify()
        self._worker.close()

    def _watch(self) -> None:
        while True:
            with self._changed:
                if not self._is_open:
                    return
                now = time.monotonic()
                due = [bound for bound in self._running if bound.at <= now]
                self._running.difference_update(due)
                if not due:
                    nearest = min((bound.at for bound in self._running), default=None)
                    self._changed.wait(None if nearest is None else min(nearest - now, threading.TIMEOUT_MAX))
            for bound in due:  # outside of the lock: it wakes whoever is blocked
                bound.set()
