"""
Web servers seen as buckets.

A web server has no listings: a page shows the one file whose path is exactly the prefix, or nothing.
What it has is learned by asking for the first byte, which also tells whether it can give ranges;
HEAD is not used, because signed URLs are signed for GET. Redirects are followed by us, a few; stored
headers and the client certificate go to the configured server only, and not any more once a redirect
has led away from it. Queries never appear in a text: they may be signatures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from urllib3 import BaseHTTPResponse
from urllib3.exceptions import HTTPError

from adapter.errors import InvalidRequest
from adapter.storage.bucket import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.secret.endpoints import is_same_endpoint, origin
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import GONE, Where
from adapter.storage.stores.body import check_part, check_size, copy_body, span_of
from adapter.storage.stores.http.config import HttpConnection, headers_of, url_of
from adapter.storage.stores.http.versions import guards, length_of, version_of
from adapter.storage.stores.http.web import Web
from adapter.storage.wire.cutting import cuttable
from adapter.storage.wire.tls import context_of
from adapter.workers import Stop

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_FIRST_BYTE = "bytes=0-0"


class HttpClient:
    """Connections to web servers with one kind of trust."""

    def __init__(self, connection: HttpConnection, max_connections: int) -> None:
        """Raises InvalidRequest: the client's certificate cannot be used."""

        def web(client_pem: str | None) -> Web:
            context = context_of(ca_pem=connection.ca_pem, verify=connection.verify_tls, client_pem=client_pem, label=connection.label)
            return Web(context, max_connections)

        pem = connection.client_pem
        self._own = web(pem.reveal() if pem else None)
        self._others = web(None) if pem else self._own

    def bucket(self, config: StorageConfig) -> HttpBucket:
        """As `Client`, for a web server."""
        return HttpBucket(self._own, self._others, config)

    def close(self) -> None:
        """As `Client`."""
        self._own.close()
        self._others.close()


class HttpBucket:
    """One web server, from one URL on. See `Bucket` for the contract."""

    kind = "http"

    def __init__(self, own: Web, others: Web, config: StorageConfig) -> None:
        self._own = own
        self._others = others
        self._url = url_of(config)
        self._headers = headers_of(config)
        self.place = self.words = f"{origin(self._url)}{self._url.path.rstrip('/')}"
        self._where = Where(
            words=self.words,
            label=config.label,
            credentials="the headers" if self._headers else "no headers",
            is_plain_http=self._url.scheme == "http",
            is_unsigned=config.is_unsigned and not self._headers,
        )

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says, as far as a web server can."""
        stop.check()
        if by_folder or token or not prefix or prefix.endswith("/"):
            return Page(objects=())
        with cuttable(stop), self._translated(stop), closing(self._sent(prefix, {"Range": _FIRST_BYTE})) as answer:
            found = self._described(prefix, answer)
            return Page(objects=() if found is None else (found,))

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """As the Protocol says. A server without ranges is read from its start on; what comes before is thrown away."""
        stop.check()
        if not length:
            return
        is_range = wanted.is_divisible and (start, length) != (0, wanted.size_bytes)
        headers = guards(wanted.etag, is_range=is_range)
        if is_range:
            headers["Range"] = f"bytes={start}-{start + length - 1}"
        with cuttable(stop):
            with self._translated(stop):
                answer = self._sent(wanted.key, headers)
            with closing(answer):  # one that was read to its end has gone back to the pool before
                self._check(answer, wanted, start)
                unwanted = start if answer.status == 200 else 0
                for count, taker in ((unwanted, _nowhere), (length, sink)):
                    copy_body(answer, count, taker, stop, key=wanted.key, where=self._where, translated=lambda: self._translated(stop))

    def _described(self, key: str, answer: BaseHTTPResponse) -> StoredObject | None:
        version = version_of(answer.headers)
        start, total = span_of(answer.headers.get("Content-Range"))
        if answer.status == 206 and start == 0:
            answer.read(1)  # all that was asked for; the connection is free then
            size, is_divisible = total, True
        elif answer.status == 416 and total == 0:
            size, is_divisible = 0, True
        elif answer.status == 200:
            size, is_divisible = length_of(answer.headers), False
        elif answer.status in GONE:
            return None
        else:
            raise self._where.refused(answer.status)
        if size is None:
            raise InvalidRequest(f"{self.place} does not say how long {key!r} is (no Content-Length), so it cannot be pulled safely")
        return StoredObject(key, size, version, is_divisible)

    def _check(self, answer: BaseHTTPResponse, wanted: StoredObject, start: int) -> None:
        """The body is of the listed version, and begins where it should: a part there, a whole file at its start."""
        if answer.status not in (200, 206):
            raise self._where.refused(answer.status, key=wanted.key)
        version = version_of(answer.headers)
        if wanted.etag and version and version != wanted.etag:
            raise self._where.other_version(wanted.key, "ETag or date")
        if answer.status == 206:
            check_part(answer.headers.get("Content-Range"), wanted, start, self._where)
        else:
            check_size(length_of(answer.headers), wanted, self._where)

    def _sent(self, key: str, headers: Mapping[str, str]) -> BaseHTTPResponse:
        """The first answer that is not a redirect."""
        url = self._url._replace(path=f"{self._url.path.rstrip('/')}/{quote(key)}")
        web, own_headers = self._own, {name: secret.reveal() for name, secret in self._headers.items()}
        for _ in range(MAX_REDIRECTS + 1):
            answer = web.get(url, {**own_headers, **headers})
            if answer.status not in _REDIRECTS:
                return answer
            answer.close()
            url = self._next(url, answer.headers.get("Location", ""))
            if not is_same_endpoint(origin(url), origin(self._url)):
                web, own_headers = self._others, {}
        raise InvalidRequest(f"{self.place} redirected more than {MAX_REDIRECTS} times")

    def _next(self, url: SplitResult, location: str) -> SplitResult:
        try:
            target = urlsplit(urljoin(url.geturl(), location))
            is_good = target.scheme in ("http", "https") and bool(target.hostname) and target.port != 0
        except ValueError:
            is_good = False
        if not location or not is_good or target.username is not None:
            raise InvalidRequest(f"{self.place} redirected to something that is not an http(s) URL")
        if url.scheme == "https" and target.scheme == "http":
            raise InvalidRequest(f"{self.place} redirected from https to plain http, which is not followed")
        return target._replace(fragment="")

    @contextmanager
    def _translated(self, stop: Stop) -> Iterator[None]:
        try:
            yield
        except (HTTPError, OSError, ValueError) as error:
            stop.check()  # we cut the socket ourselves
            raise self._where.unreachable(error) from error


def _nowhere(_: bytes) -> None:
    """Where the bytes go that were not asked for."""
