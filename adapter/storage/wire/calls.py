"""
One call of one thread: what it holds of the wire for others to cut, how much may still come in, what it waits for.

A client library hides its sockets from its caller; so what lies below the library finds the call that is under way
by the thread it runs in.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from adapter.storage.wire.metering import Bound
from adapter.waits import Wait
from adapter.workers import Stop, Stopped


class Call:
    """A request with all that a library does for it: looking for credentials, following, repeating."""

    def __init__(self, bound: Bound) -> None:
        self.bound = bound
        self._lock = threading.RLock()
        """Reentrant: an answer that the garbage collector closes lets go of its socket, wherever memory is allocated."""
        self._held: object = None
        self._wake: Callable[[], None] | None = None
        self._is_cut = False

    def hold(self, held: object, wake: Callable[[], None]) -> None:
        """From now on this is what the thread waits on, and how it is woken. Raises Stopped when the call was cut before."""
        with self._lock:
            if self._is_cut:
                raise Stopped
            self._held, self._wake = held, wake

    def let_go(self, held: object) -> None:
        """The thread does not wait on this any more; once this returns, nobody will wake it."""
        with self._lock:
            if self._held is held:
                self._held = self._wake = None

    def cut(self) -> None:
        """Wake the thread, now and whenever it starts to wait again."""
        with self._lock:
            self._is_cut = True
            if self._wake is not None:
                self._wake()

    def check(self) -> None:
        """Raise Stopped when the call was cut."""
        with self._lock:
            if self._is_cut:
                raise Stopped


class _Here(threading.local):
    call: Call | None = None
    wait: Wait | None = None


_here = _Here()


def current() -> Call | None:
    """The call that this thread is in."""
    return _here.call


@contextmanager
def calling(stop: Stop, bound: Bound) -> Iterator[None]:
    """While inside, this thread is in a call that `stop` cuts. May be nested: the inner one has a bound of its own."""
    before, call = _here.call, Call(bound)
    _here.call = call
    try:
        with stop.waking(call.cut):
            yield
    finally:
        _here.call = before


@contextmanager
def telling(wait: Wait) -> Iterator[None]:
    """While inside, a connection that this thread dials says so in `wait`."""
    _here.wait, what = wait, wait.what
    try:
        yield
    finally:
        _here.wait, wait.what = None, what


def tell(what: str | None) -> str | None:
    """Name what this thread waits for; returns what it waited for before."""
    wait = _here.wait
    if wait is None or what is None:
        return None
    before, wait.what = wait.what, what
    return before
