"""
Bounded threads for blocking work, whose calls are never left behind unseen.

All threads of a pool exist from its construction, and are daemons: a limit of processes is met at the start, in
words, and never in the middle of a load; and a call that hangs does not keep the process.

A cancelled `asyncio.to_thread` keeps running and may write into files that its owner deletes meanwhile. Here every
piece of work gets a `Stop`, checks it, and the caller's cancellation goes on only when the thread has ended. The
event loop's default executor is never used: eight silent listings would starve it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from adapter.errors import StartError

P = ParamSpec("P")
T = TypeVar("T")
QUICK_ITEMS = 200
"""Files, or rows, that are gone through in less time than a thread takes to wake."""
_QUOTA = Path("/sys/fs/cgroup/cpu.max")
"""Quota, or `max`, and period. Source: Linux, admin-guide/cgroup-v2."""
_Item = tuple[Future[Any], Callable[[], Any]]
"""Where the outcome of a call goes, and the call."""


def processors(quota_file: Path = _QUOTA) -> int:
    """That threads of this process may run on: by its affinity mask, and by the quota of its container."""
    count = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):
        quota, period = map(int, quota_file.read_text().split())
        count = min(count, -(-quota // period))
    return count


class Stopped(BaseException):
    """Raised inside a thread whose work is no longer wanted. Never leaves `Workers`."""


class Stop:
    """Tells a thread to end: a flag to look at, and actions that wake a blocked read."""

    def __init__(self) -> None:
        self._flag = threading.Event()
        self._wakers: list[Callable[[], object]] = []

    def set(self) -> None:
        """Ask the work to end, and wake what it is blocked in."""
        self._flag.set()
        for wake in tuple(self._wakers):
            wake()

    def check(self) -> None:
        """Raise Stopped when the work is no longer wanted."""
        if self._flag.is_set():
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Sleep, unless the work is no longer wanted."""
        self._flag.wait(seconds)
        self.check()

    @contextmanager
    def waking(self, wake: Callable[[], object]) -> Iterator[None]:
        """While inside, `set` also calls `wake` (from another thread), for instance to shut a socket down."""
        self._wakers.append(wake)  # before the look at the flag: `set` misses none
        try:
            self.check()
            yield
        finally:
            self._wakers.remove(wake)


class Workers(Executor):
    """A named pool: a fixed number of threads that wait for calls. `close` does not wait for a call that hangs."""

    def __init__(self, name: str, threads: int) -> None:
        """
        Raises:
            StartError: the process cannot have so many threads; those that had started end.
        """
        self._calls: SimpleQueue[_Item | None] = SimpleQueue()
        """The threads know this alone: they end when the pool is garbage. None ends them, one after another."""
        self._is_open = True
        for number in range(threads):
            try:
                threading.Thread(target=_serve, args=(self._calls,), name=f"{name}_{number}", daemon=True).start()
            except RuntimeError as error:
                self.close()
                raise StartError(
                    f"thread {number + 1} of {threads} for {name!r} cannot start: {error} (is there a limit of processes?)"
                ) from error

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the call in the next free thread. Raises RuntimeError after `close`."""
        if not self._is_open:
            raise RuntimeError("these threads take no more work")
        future: Future[T] = Future()
        self._calls.put((future, partial(fn, *args, **kwargs)))
        return future

    async def run(self, work: Callable[[Stop], T], *, is_stopped: bool = True) -> T:
        """
        Run `work` in a thread. When cancelled, stop it (or not: a clean-up), wait for its end, then go on with the cancel.

        Raises:
            whatever `work` raises.
        """
        stop = Stop()
        future = self.submit(work, stop)

        def end() -> None:
            if is_stopped:
                future.cancel()
                stop.set()

        return await to_its_end(asyncio.wrap_future(future), end)

    async def run_large(self, work: Callable[[], T], items: int) -> T:
        """
        Run `work` in a thread; with few items here, on the event loop: that takes less than a thread. Raises as
        `work`.
        """
        return work() if items <= QUICK_ITEMS else await self.run(lambda _: work())

    def close(self) -> None:
        """Cancel the calls that no thread has begun, and let the threads end; never waits for them. In the thread that submits."""
        self._is_open = False
        with suppress(Empty):
            while True:
                if item := self._calls.get_nowait():
                    item[0].cancel()
        self._calls.put(None)

    def __del__(self) -> None:
        """An owner whose constructor failed half way closes nothing."""
        self.close()


def _serve(calls: SimpleQueue[_Item | None]) -> None:
    while (item := calls.get()) is not None:
        future, call = item
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - the caller gets it
                future.set_exception(error)
        del item, future, call  # an idle thread holds nothing, and no traceback what it holds
    calls.put(None)


async def to_its_end(told: asyncio.Future[T], stop: Callable[[], object]) -> T:
    """
    The outcome of what another thread does. When cancelled, `stop` that, wait for its end, then go on with the cancel.

    Raises:
        whatever that raises.
    """
    try:
        return await asyncio.shield(told)
    except asyncio.CancelledError:
        stop()
        while not told.done():
            with suppress(asyncio.CancelledError):  # a second cancel must not leave the thread behind
                await asyncio.wait({told})
        retrieve(told)
        raise


def retrieve(future: asyncio.Future[T]) -> None:
    """
    Look at an outcome that nobody may be left to ask for: asyncio would complain of an exception that nobody has
    seen.
    """
    if not future.cancelled():
        future.exception()
