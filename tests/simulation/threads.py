"""
What the adapter uses of `threading`, `time` and its own pools of threads, on the loop's time.

`virtual` puts these in the place of the real ones.
"""

from __future__ import annotations

import contextvars
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

from tests.simulation.fibers import Fiber, used_hub
from tests.simulation.loop import LIFE

INLINE = ("volume", "secret", "planning", "look", "repository")
"""Pools whose work never blocks on anything but the folder."""


class VirtualThreads:
    """What `adapter.workers.Workers` does with its threads."""

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

    def close(self) -> None:
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


def _begin(workers: Any, name: str, threads: int) -> None:
    workers.virtual = VirtualThreads(name, threads)
    workers._calls = SimpleQueue()  # for the real `close`, of a pool that is garbage after the simulation


WORKERS: dict[str, Any] = {
    "__init__": _begin,
    "submit": lambda workers, fn, *args, **kwargs: workers.virtual.submit(fn, *args, **kwargs),
    "close": lambda workers: workers.virtual.close(),
    "__del__": lambda _: None,
}
"""Of `adapter.workers.Workers`."""


class _Event:
    def __init__(self) -> None:
        self._is_set = False
        self._waiting: list[Fiber] = []

    def set(self) -> None:
        self._is_set = True
        for fiber in self._waiting:
            fiber.wake()

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout: float) -> bool:
        fiber, end = used_hub().current, used_hub().loop.time() + timeout
        assert fiber is not None, "the event loop would block"
        self._waiting.append(fiber)
        while not self._is_set and (left := end - used_hub().loop.time()) > 0:
            fiber.block(left)
        self._waiting.remove(fiber)
        return self._is_set


threading = SimpleNamespace(Event=_Event)
"""What `adapter.workers` uses of `threading` beside its pools."""


def _now(_clock: int = 0) -> float:
    return used_hub().loop.time()


time = SimpleNamespace(CLOCK_BOOTTIME=7, monotonic=_now, clock_gettime=_now)
"""What the adapter uses of `time`, likewise."""
