"""
Bounded threads for blocking work, whose calls are never left behind unseen.

A cancelled `asyncio.to_thread` keeps running and may write into files that its owner deletes
meanwhile. Here every piece of work gets a `Stop`, checks it, and the caller's cancellation goes on
only when the thread has ended. The event loop's default executor is never used: eight silent
listings would starve it.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from adapter.threads import Threads

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


class Stopped(BaseException):
    """Raised inside a thread whose work is no longer wanted. Never leaves `Workers`."""


class Stop:
    """Tells a thread to end: a flag to look at, and actions that wake a blocked read."""

    def __init__(self) -> None:
        self._is_set = False
        self._lock = threading.Lock()
        self._wakers: list[Callable[[], None]] = []

    def set(self) -> None:
        """Ask the work to end, and wake what it is blocked in."""
        with self._lock:
            self._is_set = True
            wakers = list(self._wakers)
        for wake in wakers:
            wake()

    def check(self) -> None:
        """Raise Stopped when the work is no longer wanted."""
        if self._is_set:
            raise Stopped

    def pause(self, seconds: float) -> None:
        """Sleep, unless the work is no longer wanted."""
        woken = threading.Event()
        with self.waking(woken.set):
            woken.wait(seconds)
        self.check()

    @contextmanager
    def waking(self, wake: Callable[[], None]) -> Iterator[None]:
        """While inside, `set` also calls `wake` (from another thread), for instance to shut a socket down."""
        with self._lock:
            self.check()
            self._wakers.append(wake)
        try:
            yield
        finally:
            with self._lock:
                self._wakers.remove(wake)


class Workers:
    """A named pool of threads, all of them started. `close` does not wait for a call that hangs."""

    def __init__(self, name: str, threads: int) -> None:
        """
        Raises:
            StartError: the process cannot have so many threads; none of this pool is left.
        """
        self.threads = threads
        self._pool = Threads(name, threads)

    @property
    def executor(self) -> Executor:
        """The same threads, for a library that wants an executor. Its calls know no `Stop`."""
        return self._pool

    async def run(self, work: Callable[[Stop], T]) -> T:
        """
        Run `work` in a thread. When cancelled, stop it, wait for its end, then go on with the cancel.

        Raises:
            whatever `work` raises.
        """
        stop = Stop()
        future = self._pool.submit(work, stop)
        try:
            await _news(future)
        except asyncio.CancelledError:
            if not future.cancel():
                stop.set()
                await _ended(future)
            raise
        try:
            return future.result()
        finally:
            del future  # the traceback of a failure holds this frame

    async def run_to_end(self, work: Callable[[Stop], T]) -> T:
        """Run `work` in a thread and wait for its end even when cancelled; the cancel goes on afterwards. For clean-up."""
        future = self._pool.submit(work, Stop())
        try:
            await _news(future)
        except asyncio.CancelledError:
            await _ended(future)
            raise
        try:
            return future.result()
        finally:
            del future  # the traceback of a failure holds this frame

    def start(self, work: Callable[[Stop], object]) -> None:
        """Run `work` in a thread, and let nobody wait for it; it must not raise. Nothing happens after `close`."""
        with contextlib.suppress(RuntimeError):
            self._pool.submit(work, Stop())

    def close(self) -> None:
        """Take no more work; does not wait for what runs."""
        self._pool.shutdown()


def _news(future: Future[T]) -> asyncio.Future[None]:
    """
    Done on the loop once the thread has ended; cancelled where `close` has cancelled the call.

    Cancelled by its caller, it says nothing of the thread.
    """
    loop = asyncio.get_running_loop()
    told: asyncio.Future[None] = loop.create_future()
    future.add_done_callback(partial(_tell, loop, told))
    return told


def _tell(loop: asyncio.AbstractEventLoop, told: asyncio.Future[None], future: Future[T]) -> None:
    with contextlib.suppress(RuntimeError):  # that loop has ended, and so has whoever waited
        loop.call_soon_threadsafe(told.cancel if future.cancelled() else partial(_wake, told))


def _wake(told: asyncio.Future[None]) -> None:
    if not told.done():
        told.set_result(None)


async def _ended(future: Future[T]) -> None:
    while not future.done():
        with contextlib.suppress(asyncio.CancelledError):  # a second cancel must not leave the thread behind
            await _news(future)


def retrieve(future: asyncio.Future[T]) -> None:
    """Look at an outcome that nobody may be left to ask for: asyncio would complain of an exception that nobody has seen."""
    if not future.cancelled():
        future.exception()
