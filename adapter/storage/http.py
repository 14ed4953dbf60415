"""
Files on a web server (`type: http`), over urllib3.

A web server has no listings: a page shows the one file whose path is exactly the prefix, or nothing.
What it has is learned by asking for the first byte, which also tells whether it can give ranges;
HEAD is not used, because signed URLs are signed for GET. Redirects are followed by us, a few; stored
headers and the client certificate go to the configured server only, and not any more once a redirect
has led away from it. Queries never appear in a text: they may be signatures.
"""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Timeout, make_headers
from urllib3.exceptions import HTTPError

from adapter.errors import AdapterError, InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.credentials import StorageConfig
from adapter.storage.cutting import POOLS, SOCKET_OPTIONS, cuttable
from adapter.storage.fields import is_same_endpoint
from adapter.storage.http_connection import HttpConnection, headers_of, url_of
from adapter.storage.http_versions import guards, length_of, span_of, version_of
from adapter.storage.network import CONNECT_TIMEOUT_SECONDS, CUT, READ_TIMEOUT_SECONDS, network_words
from adapter.storage.source import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.tls import context_of
from adapter.workers import Stop

CHUNK_BYTES = 256 * 1024
MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_GONE = (404, 410)
_PASSING = (408, 425, 429)
_FIRST_BYTE = "bytes=0-0"


class HttpClient:
    """Connections to web servers with one kind of trust."""

    def __init__(self, connection: HttpConnection, max_connections: int) -> None:
        """
        Raises:
            InvalidRequest: the client's certificate cannot be used.
        """
        client_pem = connection.client_pem.reveal() if connection.client_pem else None
        trust = {"ca_pem": connection.ca_pem, "verify": connection.verify_tls, "label": connection.label}
        self._own = _Web(context_of(**trust, client_pem=client_pem), max_connections)  # type: ignore[arg-type]  # a mixed dictionary
        self._others = _Web(context_of(**trust, client_pem=None), max_connections) if client_pem else self._own  # type: ignore[arg-type]

    def source(self, config: StorageConfig) -> HttpSource:
        """
        The web server of a storage config.

        Raises:
            InvalidRequest: no URL, or headers that cannot be sent.
        """
        return HttpSource(self._own, self._others, config)

    def close(self) -> None:
        """Close idle connections."""
        self._own.close()
        self._others.close()


class HttpSource:
    """One web server, from one URL on. See `ObjectSource` for the contract."""

    kind = "http"

    def __init__(self, own: _Web, others: _Web, config: StorageConfig) -> None:
        self._own = own
        self._others = others
        self._url = url_of(config)
        self._headers = headers_of(config)
        self._label = config.label
        self._is_unsigned = config.is_unsigned
        self.place = _shown(self._url)

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says, as far as a web server can."""
        stop.check()
        if by_folder or token or not prefix or prefix.endswith("/"):
            return Page(objects=())
        with cuttable(stop), self._translated(stop), self._asked(prefix, {"Range": _FIRST_BYTE}) as answer:
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
            try:
                unwanted = start - self._first_byte(answer, wanted, start)
                self._copy(answer, unwanted, _nowhere, stop)
                self._copy(answer, length, sink, stop)
            finally:
                answer.close()  # one that was read to its end has gone back to the pool before

    def _described(self, key: str, answer: BaseHTTPResponse) -> StoredObject | None:
        version = version_of(answer.headers)
        start, total = span_of(answer.headers)
        if answer.status == 206 and start == 0:
            answer.read()
            size, is_divisible = total, True
        elif answer.status == 416 and total == 0:
            size, is_divisible = 0, True
        elif answer.status == 200:
            size, is_divisible = length_of(answer.headers), False
        elif answer.status in _GONE:
            return None
        else:
            raise self._refused(answer.status)
        if size is None:
            raise InvalidRequest(f"{self.place} does not say how long {key!r} is (no Content-Length), so it cannot be pulled safely")
        return StoredObject(key, size, version, is_divisible)

    def _first_byte(self, answer: BaseHTTPResponse, wanted: StoredObject, start: int) -> int:
        """Where the body begins, after a check that it is the listed version."""
        if answer.status in (*_GONE, 412, 416):
            what = "is gone" if answer.status in _GONE else "was replaced"
            raise SourceChanged(f"{wanted.key!r} {what} since it was listed ({self.place}, HTTP {answer.status})")
        if answer.status not in (200, 206):
            raise self._refused(answer.status)
        version = version_of(answer.headers)
        if wanted.etag and version and version != wanted.etag:
            raise SourceChanged(f"{wanted.key!r} was replaced since it was listed ({self.place}, another ETag or date)")
        first, total = span_of(answer.headers) if answer.status == 206 else (0, length_of(answer.headers))
        if total is not None and total != wanted.size_bytes:
            words = f"has {total} bytes, but had {wanted.size_bytes} when it was listed"
            raise SourceChanged(f"{wanted.key!r} was replaced since it was listed: it {words} ({self.place})")
        if first is None or first > start or (first and first != start):
            raise SourceUnavailable(f"{self.place} did not answer the range of {wanted.key!r} that was asked for")
        return first

    def _copy(self, answer: BaseHTTPResponse, length: int, sink: Sink, stop: Stop) -> None:
        missing = length
        while missing:
            with self._translated(stop):
                chunk = answer.read1(min(CHUNK_BYTES, missing))
            stop.check()
            if not chunk:
                raise SourceUnavailable(f"{self.place} ended a body {missing} bytes early")
            sink(chunk)
            missing -= len(chunk)

    @contextmanager
    def _asked(self, key: str, headers: Mapping[str, str]) -> Iterator[BaseHTTPResponse]:
        answer = self._sent(key, headers)
        try:
            yield answer
        finally:
            answer.close()

    def _sent(self, key: str, headers: Mapping[str, str]) -> BaseHTTPResponse:
        """The first answer that is no redirect."""
        url = self._url._replace(path=f"{self._url.path.rstrip('/')}/{quote(key)}")
        web, own_headers = self._own, {name: secret.reveal() for name, secret in self._headers.items()}
        for _ in range(MAX_REDIRECTS + 1):
            answer = web.get(url, {**own_headers, **headers})
            if answer.status not in _REDIRECTS:
                return answer
            answer.close()
            url = self._next(url, answer.headers.get("Location", ""))
            if not is_same_endpoint(_origin(url), _origin(self._url)):
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

    def _refused(self, status: int) -> AdapterError:
        if status in (401, 403, 407):
            return SourceDenied(f"{self.place} denied access {self._with_what()} (HTTP {status})")
        if status in _GONE:
            return SourceNotFound(f"nothing is at {self.place} (HTTP {status})")
        if status >= 500 or status in _PASSING:
            return SourceUnavailable(f"{self.place} cannot be read now (HTTP {status})")
        return InvalidRequest(f"{self.place} refused the request (HTTP {status})")

    def _with_what(self) -> str:
        if self._headers:
            return f"with the headers of {self._label}"
        if self._is_unsigned:
            return f"without headers: those of {self._label} do not belong to the url that storage_params names"
        return f"without headers: {self._label} has none"

    @contextmanager
    def _translated(self, stop: Stop) -> Iterator[None]:
        try:
            yield
        except (HTTPError, OSError, ValueError) as error:
            stop.check()  # we cut the socket ourselves
            words = network_words(error)
            hint = "; is the url https?" if words == CUT and self._url.scheme == "http" else ""
            raise SourceUnavailable(f"{self.place} cannot be reached: {words}{hint}") from error


class _Web:
    """Pools of connections: direct, and through each proxy that the environment names."""

    def __init__(self, context: object, max_connections: int) -> None:
        self._options = {
            "ssl_context": context,
            "maxsize": max_connections,
            "socket_options": SOCKET_OPTIONS,
            "timeout": Timeout(connect=CONNECT_TIMEOUT_SECONDS, read=READ_TIMEOUT_SECONDS),
        }
        self._direct = _with_cuttable_pools(PoolManager(**self._options))  # type: ignore[arg-type]  # a mixed dictionary
        self._proxied: dict[str, PoolManager] = {}

    def get(self, url: SplitResult, headers: Mapping[str, str]) -> BaseHTTPResponse:
        """The answer to a GET, its body unread. Nothing is repeated or followed."""
        return self._manager(url).urlopen(
            "GET",
            url.geturl(),
            headers={**headers, "Accept-Encoding": "identity"},
            redirect=False,
            retries=False,
            preload_content=False,
            decode_content=False,
        )

    def close(self) -> None:
        """Close idle connections."""
        for manager in (self._direct, *self._proxied.values()):
            manager.clear()

    def _manager(self, url: SplitResult) -> PoolManager:
        proxy = urllib.request.getproxies().get(url.scheme)
        if not proxy or urllib.request.proxy_bypass(url.netloc.rpartition("@")[2]):
            return self._direct
        if proxy not in self._proxied:
            parts = urlsplit(proxy if "://" in proxy else f"http://{proxy}")
            credentials = make_headers(proxy_basic_auth=f"{parts.username}:{parts.password or ''}") if parts.username else None
            bare = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()
            made = ProxyManager(bare, proxy_headers=credentials, **self._options)  # type: ignore[arg-type]  # a mixed dictionary
            self._proxied[proxy] = _with_cuttable_pools(made)
        return self._proxied[proxy]


def _nowhere(_: bytes) -> None:
    """Where the bytes go that were not asked for."""


def _with_cuttable_pools(manager: PoolManager) -> PoolManager:
    manager.pool_classes_by_scheme = POOLS
    return manager


def _origin(url: SplitResult) -> str:
    return f"{url.scheme}://{url.netloc}"


def _shown(url: SplitResult) -> str:
    """For people: no query, no user."""
    return f"{_origin(url)}{url.path.rstrip('/')}"
