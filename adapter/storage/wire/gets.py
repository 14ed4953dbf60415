"""
A GET of a file over a kept connection of urllib3's pools, without what urllib3 and the vendors' libraries do for each request.

The pools stay theirs: with the guard, the trust and the bounds that each connection has. Only who decides whether a
connection can be used again is here. Nothing is followed or repeated, and nothing goes through a proxy.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

from urllib3 import BaseHTTPResponse, HTTPConnectionPool, HTTPHeaderDict
from urllib3.exceptions import ClosedPoolError, ProtocolError

from adapter.storage.wire.cutting import TIMEOUT_SECONDS, CuttableConnection
from adapter.storage.wire.plain import Headers, PlainBody

_READ_BYTES = 16 * 1024


class Body(Protocol):
    """What http.client gives, urllib3, and botocore."""

    def read1(self, amt: int) -> bytes:
        """At most so many bytes, as soon as there are any; nothing at the end."""
        ...


class Answer(Protocol):
    """An answer, its body unread. Leaving it keeps the connection when the body was read to its end, and closes it otherwise."""

    @property
    def status(self) -> int:
        """Of HTTP."""
        ...

    @property
    def headers(self) -> Mapping[str, str]:
        """Whatever the case of their names."""
        ...

    def __enter__(self) -> Body: ...

    def __exit__(self, *_: object) -> None: ...


class Get:
    """An `Answer` to a request that is made here."""

    def __init__(
        self,
        pool: HTTPConnectionPool,
        target: str,
        headers: Mapping[str, str],
        timeout: tuple[float, float] = TIMEOUT_SECONDS,
        method: str = "GET",
    ) -> None:
        """
        Ask, and wait for the head of the answer.

        Args:
            pool: of our connections, to the server itself.
            target: path and query, quoted.
            headers: all of them; without a `Host` there is that of the pool.
            timeout: seconds to connect, and to wait for the next bytes.
            method: `GET`, or `HEAD` for the head of an answer alone.

        Raises:
            urllib3's HTTPError, OSError, ValueError: no whole head has come.
        """
        # urllib3 offers connections to its own requests alone; the bucket suite fails if these two calls are gone
        self._pool: Any = pool
        self._connection = cast("CuttableConnection", self._pool._get_conn())
        try:
            self.body: PlainBody = self._connection.get(target, headers, timeout, method)
        except BaseException:
            self._leave(is_free=False)
            raise
        self.status = self.body.status
        told = self.body.headers
        self.headers: Mapping[str, str] = told if isinstance(told, Headers) else HTTPHeaderDict(told.items())

    def __enter__(self) -> PlainBody:
        return self.body

    def __exit__(self, *_: object) -> None:
        is_free = self.body.is_read and not self.body.will_close and not _has_more(self._connection.sock)
        self.body.close()
        self._leave(is_free=is_free)

    def _leave(self, *, is_free: bool) -> None:
        if not is_free:
            self._connection.close()
        self._pool._put_conn(self._connection if is_free else None)


class Passed:
    """An `Answer` to a request that urllib3 made, as it makes them through a proxy."""

    def __init__(self, answer: BaseHTTPResponse) -> None:
        self._answer = cast("Any", answer)
        self._answer.enforce_content_length = False  # a body that ends early ends, as with `Get`: whoever reads knows what is missing
        self.status = answer.status
        self.headers = answer.headers

    def __enter__(self) -> Body:
        return cast("Body", self._answer)

    def __exit__(self, *_: object) -> None:
        self._answer.close()
        self._answer.release_conn()


class Server:
    """Who is asked: a server's pool, looked for once, and again after whoever has it has closed it."""

    def __init__(self, find: Callable[[], HTTPConnectionPool]) -> None:
        """`find` gives a pool of our connections, to the server itself."""
        self._find = find
        self._pool = find()

    def get(self, target: str, headers: Mapping[str, str], timeout: tuple[float, float] = TIMEOUT_SECONDS, method: str = "GET") -> Get:
        """As `Get`."""
        try:
            return Get(self._pool, target, headers, timeout, method)
        except ClosedPoolError:  # before anything was sent
            self._pool = self._find()
            return Get(self._pool, target, headers, timeout, method)


def _has_more(line: object) -> bool:
    """Bytes behind the answer, that TLS has in memory: where urllib3 looks before it uses the connection again, they do not show."""
    return isinstance(line, ssl.SSLSocket) and line.pending() > 0


def read_some(body: Body, most_bytes: int) -> bytes:
    """
    The next bytes of a body, at most so many; nothing at the end, too early as it may be.

    Raises:
        urllib3's HTTPError, OSError, ValueError: the body broke off, whoever reads it.
    """
    try:
        return body.read1(most_bytes)
    except http.client.HTTPException as error:
        raise ProtocolError("a body that broke off", error) from error


def read_whole(body: Body) -> bytes:
    """An error, which has a bound. Raises as `read_some`."""
    return b"".join(iter(lambda: read_some(body, _READ_BYTES), b""))
