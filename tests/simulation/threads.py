"""
What the adapter uses of `threading`, `time` and its own pools of threads, on the loop's time.

`virtual` puts these in the place of the real ones.
"""

from __future__ import annotations

import contextvars
import math
import threading as real_threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any

from tests.simulation.fibers import Fiber, used_hub
from tests.simulation.loop import LIFE

TIMEOUT_MAX = real_threading.TIMEOUT_MAX
INLINE = ("volume", "secret", "planning", "look", "repository")
"""Pools whose work never blocks on anything but the folder."""


class VirtualThreads(Executor):
    """As `adapter.workers.Threads`."""

    def __init__(self, name: str, count: int) -> None:
        self._name = name
        self._count = count
        self._is_inline = name.startswith(INLINE)
        self._waiting: deque[tuple[Future[Any], Callable[[], Any], contextvars.Context]] = deque()
        self._busy = 0
        self._is_open = True

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        if not self._is_open:
            raise RuntimeError("these threads take no more work")
        future: Future[Any] = Future()
        self._waiting.append((future, partial(fn, *args, **kwargs), contextvars.copy_context()))
        self._serve()
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        self._is_open = False
        while self._waiting:
            self._waiting.popleft()[0].cancel()

    def _serve(self) -> None:
        if self._busy < self._count and self._waiting:
            self._busy += 1
            future, work, context = self._waiting.popleft()
            used_hub().loop.call_later(used_hub().moment(), self._begin, future, work, context=context)

    def _begin(self, future: Future[Any], work: Callable[[], Any]) -> None:
        if not future.set_running_or_notify_cancel():
            self._end()
            return
        used = used_hub()
        seconds = used.moment() + used.slow_seconds(self._name)
        if self._is_inline:
            used.loop.call_later(seconds, self._run, future, work)
        else:
            fiber = Fiber(used, partial(self._run, future, work), self._name)
            used.loop.call_later(seconds, fiber.step)

    def _run(self, future: Future[Any], work: Callable[[], Any]) -> None:
        try:
            result = work()
        except BaseException as error:
            life = LIFE.get()
            if life is None or life.is_alive:
                used_hub().loop.call_later(used_hub().moment(), self._settle, future, partial(future.set_exception, error))
        else:
            used_hub().loop.call_later(used_hub().moment(), self._settle, future, partial(future.set_result, result))

    def _settle(self, _future: Future[Any], settle: Callable[[], None]) -> None:
        settle()
        self._end()

    def _end(self) -> None:
        self._busy -= 1
        self._serve()


class _Lock:
    """A lock that nobody may be found holding: work that blocks must not."""

    def __init__(self) -> None:
        self._is_held = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        assert not self._is_held, "a piece of work blocks while it holds a lock"
        self._is_held += 1
        return True

    def release(self) -> None:
        self._is_held -= 1

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class _ReentrantLock(_Lock):
    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        self._is_held += 1
        return True


class _Condition:
    def __init__(self, lock: object = None) -> None:
        self._waiters: list[Fiber] = []

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...

    def wait(self, timeout: float | None = None) -> bool:
        fiber = used_hub().current
        assert fiber is not None, "the event loop would block"
        self._waiters.append(fiber)
        try:
            fiber.block(timeout)
        finally:
            was_woken = fiber not in self._waiters
            if not was_woken:
                self._waiters.remove(fiber)
        return was_woken

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        end = math.inf if timeout is None else used_hub().loop.time() + timeout
        while not (result := predicate()):
            left = end - used_hub().loop.time()
            if left <= 0:
                break
            self.wait(None if timeout is None else left)
        return result

    def notify(self, count: int = 1) -> None:
        self.notify_all()

    def notify_all(self) -> None:
        waiters, self._waiters = self._waiters, []
        for fiber in waiters:
            fiber.wake()


class _Event:
    def __init__(self) -> None:
        self._is_set = False
        self._changed = _Condition()

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        self._is_set = True
        self._changed.notify_all()

    def clear(self) -> None:
        self._is_set = False

    def wait(self, timeout: float | None = None) -> bool:
        return bool(self._changed.wait_for(self.is_set, timeout))


class _Thread:
    def __init__(self, *, target: Callable[..., None], args: tuple[Any, ...] = (), name: str = "", daemon: bool = False) -> None:
        self._work = partial(target, *args)
        self._name = name

    def start(self) -> None:
        fiber = Fiber(used_hub(), self._work, self._name)
        used_hub().loop.call_later(used_hub().moment(), fiber.step)

    def join(self, timeout: float | None = None) -> None:
        """Nobody waits for a thread at the end of a simulation."""

    def is_alive(self) -> bool:
        return True


class threading:  # noqa: N801 - stands for the module
    """What the adapter uses of `threading`, in virtual time."""

    TIMEOUT_MAX = TIMEOUT_MAX
    Lock = _Lock
    RLock = _ReentrantLock
    Condition = _Condition
    Event = _Event
    Thread = _Thread
    local = real_threading.local
    current_thread = staticmethod(real_threading.current_thread)


class time:  # noqa: N801 - stands for the module
    """What the adapter uses of `time`, likewise."""

    CLOCK_BOOTTIME = 7

    @staticmethod
    def monotonic() -> float:
        return used_hub().loop.time()

    time = monotonic

    @staticmethod
    def clock_gettime(_clock: int) -> float:
        return used_hub().loop.time()
