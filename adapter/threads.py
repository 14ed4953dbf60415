"""
An executor whose threads all exist from its construction, and are daemons.

A limit of processes is thus met at the start, in words, and never in the middle of a load; and a call
that hangs does not keep the process, as a thread of the standard library's pool would.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

from adapter.errors import StartError

P = ParamSpec("P")
T = TypeVar("T")
_Item = tuple[Future[Any], Callable[[], Any]] | None
"""Where the outcome of a call goes, and the call; None ends one thread."""


class Threads(Executor):
    """
    A fixed number of threads that wait for calls.

    Raises:
        StartError: the process cannot have so many threads; those that had started end.
    """

    def __init__(self, name: str, count: int) -> None:
        self._queue: SimpleQueue[_Item] = SimpleQueue()
        self._lock = threading.RLock()
        """Reentrant: a finalizer that asks for work may run wherever memory is allocated, also in `submit`."""
        self._running = 0
        self._is_open = True
        try:
            for number in range(count):
                threading.Thread(target=_serve, args=(self._queue,), name=f"{name}_{number}", daemon=True).start()
                self._running += 1
        except RuntimeError as error:
            self.shutdown()
            raise StartError(
                f"thread {self._running + 1} of {count} for {name!r} cannot start: {error} (is there a limit of processes?)"
            ) from error

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Run the call in the next free thread. Raises RuntimeError after `shutdown`."""
        future: Future[T] = Future()
        with self._lock:
            if not self._is_open:
                raise RuntimeError("these threads take no more work")
            self._queue.put((future, partial(fn, *args, **kwargs)))
        return future

    def shutdown(self, wait: bool = False, *, cancel_futures: bool = True) -> None:
        """Cancel the calls that no thread has begun, and let the threads end; never waits for them."""
        with self._lock:
            self._is_open = False
            with suppress(Empty):
                while True:
                    if item := self._queue.get_nowait():
                        item[0].cancel()
            for _ in range(self._running):
                self._queue.put(None)

    def __del__(self) -> None:
        """An owner whose constructor failed half way closes nothing."""
        self.shutdown()


def _serve(queue: SimpleQueue[_Item]) -> None:
    while (item := queue.get()) is not None:
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
