"""
An executor whose threads all exist from its construction, and are daemons.

A limit of processes is thus met at the start, in words, and never in the middle of a load; and a call
that hangs does not keep the process, as a thread of the standard library's pool would.

The thread that became idle last has the next call: its stack is still in the processor's caches. In turns, 128 threads take
five times as much CPU for a short call as one.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import Any, ParamSpec, TypeVar

from adapter.errors import StartError

PROCESSORS = len(os.sched_getaffinity(0))
"""That threads of this process may run on."""
P = ParamSpec("P")
T = TypeVar("T")
_Item = tuple[Future[Any], Callable[[], Any]]
"""Where the outcome of a call goes, and the call."""


class Threads(Executor):
    """
    A fixed number of threads that wait for calls.

    Raises:
        StartError: the process cannot have so many threads; those that had started end.
    """

    def __init__(self, name: str, count: int) -> None:
        self._desk = _Desk()
        """The threads know the desk alone: they end when nobody has the pool any more."""
        for number in range(count):
            try:
                threading.Thread(target=_serve, args=(self._desk,), name=f"{name}_{number}", daemon=True).start()
            except RuntimeError as error:
                self.shutdown()
                raise StartError(
                    f"thread {number + 1} of {count} for {name!r} cannot start: {error} (is there a limit of processes?)"
                ) from error

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the call in the next free thread. Raises RuntimeError after `shutdown`."""
        future: Future[T] = Future()
        self._desk.give((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Cancel the calls that no thread has begun, and let the threads end; never waits for them."""
        self._desk.close()

    def __del__(self) -> None:
        """An owner whose constructor failed half way closes nothing."""
        self.shutdown()


class _Seat:
    """Where one thread waits for its next call."""

    def __init__(self) -> None:
        self.turn = threading.Lock()
        """Held, but for the moment in which the thread is woken."""
        self.turn.acquire()
        self.item: _Item | None = None


class _Desk:
    """Calls that no thread has begun, and threads without a call. One of the two is empty."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        """Reentrant: a finalizer that asks for work may run wherever memory is allocated, also in here."""
        self._waiting: deque[_Item] = deque()
        self._idle: list[_Seat] = []
        """The last one became idle last."""
        self._is_open = True

    def give(self, item: _Item) -> None:
        """To the thread that became idle last, or to the next one that does. Raises RuntimeError after `close`."""
        with self._lock:
            if not self._is_open:
                raise RuntimeError("these threads take no more work")
            if self._idle:
                _wake(self._idle.pop(), item)
            else:
                self._waiting.append(item)

    def take(self, seat: _Seat) -> _Item | None:
        """Wait for a call; None: the thread ends."""
        with self._lock:
            if not self._is_open:
                return None
            self._idle.append(seat)
            if self._waiting and self._idle and self._idle[-1] is seat:  # else a finalizer has just given it a call
                self._idle.pop()
                return self._waiting.popleft()
        seat.turn.acquire()
        item, seat.item = seat.item, None
        return item

    def close(self) -> None:
        """Cancel what waits, and end the threads."""
        with self._lock:
            self._is_open = False
            while self._waiting:
                self._waiting.popleft()[0].cancel()
            while self._idle:
                _wake(self._idle.pop(), None)


def _wake(seat: _Seat, item: _Item | None) -> None:
    seat.item = item
    seat.turn.release()


def _serve(desk: _Desk) -> None:
    seat = _Seat()
    while (item := desk.take(seat)) is not None:
        _settle(*item)
        del item  # an idle thread holds nothing


def _settle(future: Future[Any], call: Callable[[], Any]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - whoever asked gets it
        future.set_exception(error)
        del future  # the traceback holds this frame, and with it whoever the frame holds
    else:
        future.set_result(result)
