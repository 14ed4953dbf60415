"""
Waking a thread that waits on a socket, and telling what it waits for while it dials.

When the work of a call is no longer wanted, its socket is cut. Works for every client library over
urllib3, none of which lets its caller see the socket: our connections, put into urllib3's pools, make
it known to the call that is under way in their thread.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.util.ssltransport import SSLTransport

from adapter.waits import Wait
from adapter.workers import Stop, Stopped


class _Line:
    """The socket of one call, for another thread to cut."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_cut = False

    def attach(self, line: socket.socket | None) -> None:
        with self._lock:
            self._socket = line
            if line is not None and self._is_cut:
                raise Stopped

    def cut(self) -> None:
        with self._lock:
            self._is_cut = True
            if self._socket is None:
                return
            try:
                # not SSLSocket.shutdown: that one takes TLS away under the reader, who would read ciphertext
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                return  # the peer was faster


_calls = threading.local()


@contextmanager
def cuttable(stop: Stop) -> Iterator[None]:
    """While inside, `stop` cuts the socket that this thread waits on, before the headers or in the body."""
    line = _calls.line = _Line()
    try:
        with stop.waking(line.cut):
            yield
    finally:
        _calls.line = None
        line.attach(None)


@contextmanager
def telling(wait: Wait) -> Iterator[None]:
    """While inside, a connection that this thread dials says so in `wait`."""
    _calls.wait, what = wait, wait.what
    try:
        yield
    finally:
        _calls.wait, wait.what = None, what


def _tell(what: str | None) -> str | None:
    """Name what this thread waits for; returns what it waited for before."""
    wait: Wait | None = getattr(_calls, "wait", None)
    if wait is None or what is None:
        return None
    before, wait.what = wait.what, what
    return before


class CuttableConnection:
    """
    Makes its socket known once a request is sent, and tells what it does before that.

    Dialling and the TLS handshake are not cut: the connect timeout bounds them.
    """

    sock: socket.socket
    host: str
    port: int

    def connect(self) -> None:
        """As urllib3's."""
        before = _tell(f"a connection to {self.host}:{self.port}")
        try:
            super().connect()  # type: ignore[misc]  # a mixin: urllib3's connection comes next
        finally:
            _tell(before)

    def _new_conn(self) -> socket.socket:
        """As urllib3's; a plain connection has nothing to wait for after it, one over TLS has the handshake."""
        line: socket.socket = super()._new_conn()  # type: ignore[misc]  # likewise
        _tell(f"the TLS handshake of {self.host}:{self.port}")
        return line

    def getresponse(self) -> Any:
        """As urllib3's."""
        line: _Line | None = getattr(_calls, "line", None)
        if line is not None:
            line.attach(_socket_of(self.sock))
        return super().getresponse()  # type: ignore[misc]  # a mixin: urllib3's connection comes next


def _socket_of(line: Any) -> socket.socket:
    """urllib3 wraps TLS inside of a proxy's TLS in an object that is not a socket."""
    while isinstance(line, SSLTransport):
        line = line.socket
    return cast("socket.socket", line)


class _PlainConnection(CuttableConnection, HTTPConnection):
    pass


class _TlsConnection(CuttableConnection, HTTPSConnection):
    pass


class _PlainPool(HTTPConnectionPool):
    ConnectionCls = _PlainConnection


class _TlsPool(HTTPSConnectionPool):
    ConnectionCls = _TlsConnection


POOLS: dict[str, type[HTTPConnectionPool]] = {"http": _PlainPool, "https": _TlsPool}
"""For the `pool_classes_by_scheme` of a urllib3 pool manager."""
SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]


def close_pools(manager: PoolManager) -> None:
    """Close idle connections at once: urllib3's own `clear` leaves that to the garbage collector. Calls under way go on."""
    pools = [manager.pools.get(key) for key in manager.pools.keys()]  # noqa: SIM118 - it cannot be iterated
    manager.clear()
    for pool in pools:
        if pool is not None:
            pool.close()
