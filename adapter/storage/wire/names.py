"""
Names and their addresses, looked up where a caller can be woken.

The operating system's resolver blocks for as long as its name servers are silent (5 to 30 s), and nothing wakes it. So
threads of ours ask it, and callers wait for them. Names that only a request gave have threads of their own: whoever
makes up names whose servers are silent keeps nobody waiting for the names of the stored configs. A name whose servers were silent
is looked up by threads for such names, until it is answered quickly: so silent ones do not take, again and again, the threads
that others need.
"""

from __future__ import annotations

import functools
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from adapter.storage.wire.calls import Call
from adapter.threads import Threads

THREADS = 4
"""Of each kind: names that are asked for at once."""
SLOW_THREADS = 2
"""Of each kind: names whose servers were silent."""
_QUICK_SECONDS = 1.0
"""A name that is answered within that is not slow any more."""
_KEPT_NAMES = 256


@dataclass(frozen=True)
class Address:
    """What a name stands for."""

    family: int
    sockaddr: tuple[Any, ...]
    """As the operating system says; its port is any."""

    @property
    def text(self) -> str:
        """As numbers; with the scope, where there is one."""
        return str(self.sockaddr[0])

    def at(self, port: int) -> tuple[Any, ...]:
        """What a socket connects to."""
        return (self.sockaddr[0], port, *self.sockaddr[2:])


class SlowName(TimeoutError):
    """A name was not resolved in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"its name was not resolved within {seconds:g} s (are the name servers away?)")


class Resolver:
    """Looks names up, each at most once at a time."""

    def __init__(self, name: str, threads: int) -> None:
        """Raises StartError."""
        self._threads = Threads(name, threads)
        self._slow_threads = Threads(f"slow-{name}", SLOW_THREADS)
        self._slow: OrderedDict[str, None] = OrderedDict()
        """Names that a thread was still busy with when a caller gave up; the last ones."""
        self._lock = threading.RLock()
        """Reentrant: what is done, or given up, is forgotten inside."""
        self._asked: dict[str, tuple[Future[tuple[Address, ...]], list[None]]] = {}
        """What is under way, and one entry for each caller that waits."""

    def resolve(self, host: str, *, seconds: float, call: Call | None) -> tuple[Address, ...]:
        """
        Raises:
            socket.gaierror: the name has no address, or name servers said that they cannot tell.
            SlowName: they said nothing.
            Stopped: the call was cut.
        """
        woken = threading.Event()
        with self._asking(host) as future:
            future.add_done_callback(lambda _: woken.set())
            if call is not None:
                call.hold(woken, woken.set)
            try:
                woken.wait(seconds)
            finally:
                if call is not None:
                    call.let_go(woken)
            if call is not None:
                call.check()
            if not future.done():
                if future.running():  # else it was others that held the threads
                    self._note_slow(host)
                raise SlowName(seconds)
            return future.result()

    @contextmanager
    def _asking(self, host: str) -> Iterator[Future[tuple[Address, ...]]]:
        with self._lock:
            is_new = host not in self._asked
            if is_new:
                threads = self._slow_threads if host in self._slow else self._threads
                self._asked[host] = (threads.submit(self._looked_up, host), [])
            future, callers = self._asked[host]
            callers.append(None)
            if is_new:
                future.add_done_callback(lambda _: self._forget(host))
        try:
            yield future
        finally:
            with self._lock:
                callers.pop()
                if not callers:
                    future.cancel()

    def _looked_up(self, host: str) -> tuple[Address, ...]:
        began = time.monotonic()
        try:
            return _asked(host, 0)
        finally:
            if time.monotonic() - began < _QUICK_SECONDS:
                with self._lock:
                    self._slow.pop(host, None)

    def _note_slow(self, host: str) -> None:
        with self._lock:
            self._slow[host] = None
            self._slow.move_to_end(host)
            if len(self._slow) > _KEPT_NAMES:
                self._slow.popitem(last=False)

    def _forget(self, host: str) -> None:
        """Also where the answer comes after the last caller: nobody may ask for this name again."""
        with self._lock:
            del self._asked[host]


@functools.cache
def _resolvers() -> tuple[Resolver, Resolver]:
    return Resolver("name", THREADS), Resolver("requested-name", THREADS)


def start() -> None:
    """Start the threads. Raises StartError: the process cannot have so many."""
    _resolvers()


def addresses_of(host: str, *, seconds: float, call: Call | None, is_requested: bool) -> tuple[Address, ...]:
    """
    The addresses of a host, in the order in which they are to be tried. Numbers, in whatever notation, need no look-up.

    Args:
        host: name or numbers, IPv6 with or without brackets.
        seconds: longest wait.
        call: whose stop ends the wait.
        is_requested: only a request named the host.

    Raises:
        LocationParseError: not a name, in urllib3's words: its callers know what to do.
        OSError: as `Resolver.resolve`.
    """
    host = host.strip("[]")
    try:
        host.encode("idna")
        return _numeric(host)
    except UnicodeError:
        from urllib3.exceptions import LocationParseError  # noqa: PLC0415 - a start does not import urllib3

        raise LocationParseError(f"{host!r}, label empty or too long") from None
    except socket.gaierror:
        return _resolvers()[is_requested].resolve(host, seconds=seconds, call=call)


def _numeric(host: str) -> tuple[Address, ...]:
    """Raises gaierror: a name."""
    return _asked(host, socket.AI_NUMERICHOST)


def _asked(host: str, flags: int) -> tuple[Address, ...]:
    from urllib3.util.connection import allowed_gai_family  # noqa: PLC0415 - likewise

    found = socket.getaddrinfo(host, None, allowed_gai_family(), socket.SOCK_STREAM, 0, flags)
    return tuple(dict.fromkeys(Address(family, sockaddr) for family, _, _, _, sockaddr in found))
