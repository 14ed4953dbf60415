"""
Waking a thread that waits on a socket, bounding what comes in, and telling what it waits for while it dials.

When the work of a call is no longer wanted, its socket is cut. Works for every client library over
urllib3, none of which lets its caller see the socket: our connections, put into urllib3's pools, make
it known to the call that is under way in their thread.
"""

from __future__ import annotations

import functools
import http.client
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, TypeVar

from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError, ProtocolError
from urllib3.util import Url, parse_url

from adapter.storage.wire.calls import Call, calling, current, tell
from adapter.storage.wire.dialling import FREE, Guard, dial
from adapter.storage.wire.metering import CONTROL_BYTES, Bound, MeteredResponse, cut, socket_of
from adapter.storage.wire.names import addresses_of
from adapter.storage.wire.network import CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS
from adapter.storage.wire.plain import FIRST_BYTES, PlainAnswer, PlainBody, count_in, head_of, request
from adapter.workers import Stop

A = TypeVar("A")

__all__ = ["PAGE_BYTES", "CuttableConnection", "close_pools", "cuttable", "most_of", "pools"]
TIMEOUT_SECONDS = (CONNECT_TIMEOUT_SECONDS, READ_TIMEOUT_SECONDS)
"""To connect, and to wait for the next bytes."""
PAGE_BYTES = CONTROL_BYTES
"""Most that an answer to a listing of 1,000 keys may have; see the stores for what a key can take."""


class FileBytes(int):
    """A bound of a call whose good answer is a file, as it is stored: nobody decodes it."""


def most_of(length: int) -> FileBytes:
    """Most bytes that an answer may have whose body is so many bytes of a file."""
    return FileBytes(2 * length + PAGE_BYTES)


@contextmanager
def cuttable(stop: Stop, *, most_bytes: int) -> Iterator[None]:
    """
    While inside, `stop` cuts what this thread waits on: a name's look-up, a dial, headers, the body.

    What the libraries raise inside may have one of these as its cause; the connection is closed then.

    Args:
        stop: of the work.
        most_bytes: bounds what may come from all peers together: headers, bodies, framing. Where it comes from
            `most_of`, the answer to a GET is a file and taken as stored. Any other call asks for bodies without an
            encoding.

    Raises:
        TooMuch: a peer sent more, or more than 256 KiB of headers, or more than 64 KiB of an error.
        UnaskedEncoding: a body that is no file came encoded.
        SlowHead: headers did not end in time.
        SlowName: a name was not resolved in time.
        DeniedAddress: the guard of a connection forbids its address.
    """
    with calling(stop, Bound(most_bytes, as_stored=isinstance(most_bytes, FileBytes))):
        yield


class CuttableConnection:
    """A connection whose waits the call of its thread knows, from the look-up of the name to the end of the body."""

    guard: ClassVar[Guard] = FREE
    sock: socket.socket
    host: str
    port: int
    proxy: Url | None
    timeout: float | None
    socket_options: Any
    default_port: int
    _dns_host: str
    _tunnel_host: str | None
    _tunnel_port: int | None
    _dialled: socket.socket | None = None
    """A second handle of the socket that TLS is laid over: that takes the first one away."""

    def connect(self) -> None:
        """As urllib3's. Raises DeniedAddress, too."""
        call = current()
        before = tell(f"a connection to {self.host}:{self.port}")
        try:
            if self._tunnel_host:
                self._check_target(self._tunnel_host, call)
            super().connect()  # type: ignore[misc]  # a mixin: urllib3's connection comes next
        finally:
            tell(before)
            if self._dialled is not None:
                if call is not None:
                    call.let_go(self._dialled)
                self._dialled.close()
                self._dialled = None

    def request(self, method: str, url: str, body: Any = None, headers: Mapping[str, Any] | None = None, *args: Any, **options: Any) -> Any:
        """As urllib3's, or botocore's."""
        call = current()
        target = url if isinstance(url, str) else ""
        if self.guard.denied and self.proxy is not None and "://" in target:
            self._check_target(parse_url(target).host or "", call)
        if call is None or not call.bound.as_stored or method != "GET":
            headers = _without_encodings(headers)
        self._hold(call, self.sock)
        return super().request(method, url, body, headers, *args, **options)  # type: ignore[misc]  # likewise

    def get(
        self, target: str, headers: Mapping[str, str], timeout: tuple[float, float] = TIMEOUT_SECONDS, method: str = "GET"
    ) -> PlainBody:
        """
        Ask for a file: an answer with its body unread. What urllib3 and http.client do around it costs more than the request.

        Connects where there is no connection. Raises urllib3's HTTPError, OSError, ValueError: no whole head has come.
        """
        if self.sock is None:
            self.timeout = timeout[0]
            self.connect()
        call, line = current(), self.sock
        self._hold(call, line)
        line.settimeout(timeout[1])
        line.sendall(request(method, target, self._own_name(), headers.items()))
        seen = b""
        if call is not None and call.bound.as_stored and method == "GET":
            seen = line.recv(FIRST_BYTES)
            head = head_of(seen)
            if head is not None:
                count_in(line, call.bound, len(seen))
                status, told, end = head
                ended = partial(call.let_go, socket_of(line))
                return PlainAnswer(line, status, told, memoryview(seen)[end:], bound=call.bound, ended=ended)
        try:
            answer = self.response_class(line, method=method, seen=seen)
            try:
                answer.begin()
            except BaseException:
                answer.close()
                raise
        except http.client.HTTPException as error:
            raise ProtocolError("no answer", error) from error
        if answer.will_close:
            super().close()  # type: ignore[misc]  # a mixin: the answer has the socket to itself
        return self._held_on(answer, call, line)

    def _own_name(self) -> str:
        """As http.client has it in `Host`."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == self.default_port else f"{host}:{self.port}"

    def getresponse(self) -> Any:
        """As urllib3's. An answer that ends with its connection has the socket to itself, and the connection has none."""
        call, line = current(), self.sock
        self._hold(call, line)
        return self._held_on(super().getresponse(), call, line)  # type: ignore[misc]  # likewise

    def close(self) -> None:
        """As urllib3's. The number of a socket that was closed may be another connection's at once."""
        call = current()
        if call is not None and self.sock is not None:
            call.let_go(socket_of(self.sock))
        super().close()  # type: ignore[misc]  # likewise

    def response_class(self, line: Any, *args: Any, **options: Any) -> MeteredResponse:
        """Called by http.client, to which it is a class."""
        call = current()
        if call is None:
            return MeteredResponse(line, *args, **options, bound=Bound(PAGE_BYTES, as_stored=False), ended=_nothing)
        return MeteredResponse(line, *args, **options, bound=call.bound, ended=partial(call.let_go, socket_of(line)))

    def _new_conn(self) -> socket.socket:
        """As urllib3's, which looks up and dials where nobody can be woken. What follows is the handshake, if any."""
        call = current()
        seconds = self.timeout if isinstance(self.timeout, int | float) else CONNECT_TIMEOUT_SECONDS
        guard = FREE if self.proxy is not None else self.guard
        before = tell(f"the address of {self.host}")
        try:
            addresses = addresses_of(self._dns_host, seconds=seconds, call=call, is_requested=bool(guard.denied))
            guard.check(addresses)
            tell(before)
            line = dial(addresses, self.port, seconds=seconds, options=self.socket_options or (), call=call)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from error  # type: ignore[arg-type]  # a mixin of what it wants
        except TimeoutError as error:
            raise ConnectTimeoutError(self, f"no connection within {seconds} s") from error
        except OSError as error:
            raise NewConnectionError(self, "no connection") from error  # type: ignore[arg-type]  # likewise
        line.settimeout(seconds)
        if call is not None:
            self._dialled = line.dup()
            try:
                call.hold(self._dialled, partial(cut, self._dialled))
            except BaseException:
                line.close()
                raise
        tell(f"the TLS handshake of {self.host}:{self.port}")
        return line

    def _tunnel(self) -> None:
        """As urllib3's, or http.client's."""
        tell(f"a tunnel through the proxy {self.host}:{self.port}")
        super()._tunnel()  # type: ignore[misc]  # likewise
        tell(f"the TLS handshake of {self._tunnel_host}:{self._tunnel_port}")

    def _check_target(self, host: str, call: Call | None) -> None:
        """What a proxy is to reach: the addresses that are known here. Others are the proxy's to judge."""
        if not self.guard.denied:
            return
        for spelling in dict.fromkeys((host, host.rstrip("."))):
            try:
                addresses = addresses_of(spelling, seconds=CONNECT_TIMEOUT_SECONDS, call=call, is_requested=True)
            except (socket.gaierror, TimeoutError):
                continue
            self.guard.check(addresses)

    def _held_on(self, answer: A, call: Call | None, line: Any) -> A:
        if self.sock is None:
            try:
                self._hold(call, line)
            except BaseException:
                answer.close()  # nobody else knows it yet
                raise
        return answer

    def _hold(self, call: Call | None, line: Any) -> None:
        if call is not None and line is not None:
            held = socket_of(line)
            call.hold(held, partial(cut, held))


def _without_encodings(headers: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Libraries ask for encodings by themselves. Without a word of theirs, http.client asks for none."""
    if not any(name.lower() == "accept-encoding" for name in headers or ()):
        return headers
    others = {name: value for name, value in (headers or {}).items() if name.lower() != "accept-encoding"}
    return {**others, "Accept-Encoding": "identity"}


def _nothing() -> None:
    """Outside of a call."""


class _PlainConnection(CuttableConnection, HTTPConnection):  # type: ignore[misc]  # http.client calls its response_class, no more
    pass


class _TlsConnection(CuttableConnection, HTTPSConnection):  # type: ignore[misc]  # likewise
    pass


def guarded_pools(guard: Guard, kinds: Mapping[str, tuple[type[HTTPConnectionPool], type]]) -> dict[str, type[HTTPConnectionPool]]:
    """By scheme: pools of these kinds, with connections of these kinds that go where the guard allows."""
    return {
        scheme: type(pool.__name__, (pool,), {"ConnectionCls": type(connection.__name__, (connection,), {"guard": guard})})
        for scheme, (pool, connection) in kinds.items()
    }


@functools.cache
def _pools(guard: Guard) -> dict[str, type[HTTPConnectionPool]]:
    return guarded_pools(guard, {"http": (HTTPConnectionPool, _PlainConnection), "https": (HTTPSConnectionPool, _TlsConnection)})


def pools(guard: Guard) -> dict[str, type[HTTPConnectionPool]]:
    """For the `pool_classes_by_scheme` of a urllib3 pool manager: connections that go where the guard allows."""
    return dict(_pools(guard))


SOCKET_OPTIONS = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]


def close_pools(manager: PoolManager) -> None:
    """Close idle connections at once: urllib3's own `clear` leaves that to the garbage collector. Calls under way go on."""
    pools = [manager.pools.get(key) for key in manager.pools.keys()]  # noqa: SIM118 - it cannot be iterated
    manager.clear()
    for pool in pools:
        if pool is not None:
            pool.close()
