"""
Threads of the adapter on the loop's time: each piece of work runs alone, at a moment that the seed decides.

A piece of work that blocks (on an event, a condition, a pause) lets the loop go on and is resumed when it is woken or its
time is up. For that it has a real thread, which runs only while the loop waits for it. Work that never blocks needs none.
"""

from __future__ import annotations

import _thread
import asyncio
import contextvars
import random
import threading as real_threading
from collections.abc import Callable
from functools import partial

from tests.simulation.loop import LIFE, Life, VirtualLoop


class Killed(BaseException):
    """The process of this piece of work is dead."""


class _Carrier:
    """A real thread that runs one fiber after the other, each only while a task waits for it."""

    def __init__(self) -> None:
        self.go, self.back = _thread.allocate_lock(), _thread.allocate_lock()
        self.go.acquire()
        self.back.acquire()
        self.work: Callable[[], None] | None = None
        self.error: BaseException | None = None
        real_threading.Thread(target=self._serve, name="carrier", daemon=True).start()

    def _serve(self) -> None:
        while True:
            self.go.acquire()
            assert self.work is not None
            try:
                self.work()
            except BaseException as error:
                self.error = error
            self.work = None
            self.back.release()

    def step(self) -> bool:
        """Run until it blocks or has ended; whether it has ended."""
        self.go.release()
        self.back.acquire()
        if self.work is not None:
            return False
        error, self.error = self.error, None
        if error is not None and not isinstance(error, Killed):
            raise error
        return True

    def block(self) -> None:
        self.back.release()
        self.go.acquire()


_idle: list[_Carrier] = []


class Fiber:
    """One piece of work that may block."""

    def __init__(self, hub: Hub, work: Callable[[], None], name: str) -> None:
        self._hub = hub
        self.name = name
        self.life = LIFE.get()
        self._context = contextvars.copy_context()
        self._carrier = _idle.pop() if _idle else _Carrier()
        self._carrier.work = partial(self._context.run, work)
        self._is_blocked = False
        self._is_killed = False
        self._timer: asyncio.TimerHandle | None = None
        self._is_due = False
        hub.fibers.append(self)

    def step(self) -> None:
        """Go on, on the loop's thread."""
        before, self._hub.current = self._hub.current, self
        self._is_blocked = self._is_due = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            has_ended = self._carrier.step()
        finally:
            self._hub.current = before
        if has_ended:
            self._hub.fibers.remove(self)
            _idle.append(self._carrier)

    def wake(self) -> None:
        """Go on soon."""
        if self._is_blocked and not self._is_due:
            self._is_due = True
            self._hub.loop.call_later(self._hub.moment(), self.step, context=self._hub.loop.in_name_of(self.life))

    def block(self, seconds: float | None) -> None:
        """In the fiber: wait until it is woken, or for so long."""
        if self._is_killed:
            raise Killed
        self._is_blocked = True
        if seconds is not None:
            context = self._hub.loop.in_name_of(self.life)
            self._timer = self._hub.loop.call_at(self._hub.loop.time() + max(seconds, 0), self.wake, context=context)
        self._carrier.block()
        if self._is_killed:
            raise Killed

    def kill(self) -> None:
        """End it wherever it is, on the loop's thread."""
        self._is_killed = True
        while self in self._hub.fibers:
            self.step()


class Hub:
    """All fibers of one simulation."""

    def __init__(self, loop: VirtualLoop, decide: random.Random) -> None:
        self.loop = loop
        self.decide = decide
        self.fibers: list[Fiber] = []
        self.current: Fiber | None = None
        self.slow_seconds: Callable[[str], float] = lambda _: 0.0
        """How long a pool's work takes besides; by name of the pool."""

    def moment(self) -> float:
        """Some moment soon."""
        return self.decide.choice((0.0, 0.0001, 0.0005, 0.002))

    def kill(self, life: Life) -> None:
        """End all that a dead process has."""
        for fiber in [fiber for fiber in self.fibers if fiber.life is life and fiber is not self.current]:
            fiber.kill()


hub: Hub | None = None


def used_hub() -> Hub:
    """Of the simulation that runs."""
    assert hub is not None
    return hub


def use(used: Hub | None) -> None:
    """From now on, all threads are those of this simulation."""
    global hub  # noqa: PLW0603 - the adapter's modules find it
    hub = used
