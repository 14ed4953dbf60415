"""
Web servers seen as buckets.

A web server has no listings: a page shows the one file whose path is exactly the prefix, or nothing.
What it has is learned by asking for the first byte, which also tells whether it can give ranges;
HEAD is not used, because signed URLs are signed for GET. A file whose server names no version of it is read
whole, in one answer. Redirects are followed by us, a few; stored headers and the client certificate go to the
configured server only, and not any more once a redirect has led away from it; whereto is then nobody's choice
but that server's, so its addresses are guarded. Queries never appear in a text: they may be signatures.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from urllib.parse import SplitResult, quote, urljoin, urlsplit

from urllib3.exceptions import HTTPError

from adapter.errors import AdapterError, InvalidRequest
from adapter.storage.bucket import PAGE_OBJECTS, Page, Sink, StoredObject
from adapter.storage.secret.endpoints import is_same_endpoint, origin
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import GONE, Where
from adapter.storage.stores.body import check_told, copy_body, hear_out, span_of, told_by
from adapter.storage.stores.clients import Means
from adapter.storage.stores.http.config import HttpConnection, headers_of, url_of
from adapter.storage.stores.http.versions import checksums_of, encoding_of, guards, is_held_to, listed_version_of, version_of
from adapter.storage.stores.http.web import Web
from adapter.storage.wire.cutting import cuttable, most_of
from adapter.storage.wire.dialling import FREE, DeniedAddress, Guard
from adapter.storage.wire.gets import Answer, Body, read_some
from adapter.storage.wire.network import root_of
from adapter.storage.wire.tls import context_of
from adapter.workers import Stop

MAX_REDIRECTS = 5
_REDIRECTS = (301, 302, 303, 307, 308)
_GOOD = (200, 206)
_FIRST_BYTE = "bytes=0-0"


class HttpClient:
    """Connections to web servers with one kind of trust."""

    def __init__(self, connection: HttpConnection, means: Means, stop: Stop) -> None:
        """Raises InvalidRequest: the client's certificate cannot be used."""

        def web(client_pem: str | None, guard: Guard) -> Web:
            context = context_of(ca_pem=connection.ca_pem, verify=connection.verify_tls, client_pem=client_pem, label=connection.label)
            return Web(context, means.max_connections, guard)

        pem, guard = connection.client_pem, means.guard if connection.is_requested else FREE
        self._own = web(pem.reveal() if pem else None, guard)
        self._others = web(None, means.guard) if pem or guard != means.guard else self._own

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
        self.endpoint = self._url.netloc
        self.is_encrypted = self._url.scheme == "https"
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
            return Page(objects=(), is_answer=False)
        with cuttable(stop, most_bytes=most_of(1)), self._translated(stop):
            answer = self._sent(prefix, {"Range": _FIRST_BYTE})
            with answer as body:
                found = self._described(prefix, answer, body)
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
        with cuttable(stop, most_bytes=most_of(start + length)):
            with self._translated(stop):
                answer = self._sent(wanted.key, headers)
            with answer as body:
                self._check(answer, body, wanted, start, length)
                unwanted = start if answer.status == 200 else 0
                is_whole = answer.status == 206 or unwanted + length == wanted.size_bytes
                for count, taker in ((unwanted, _nowhere), (length, sink)):
                    copy_body(
                        body,
                        count,
                        taker,
                        stop,
                        key=wanted.key,
                        where=self._where,
                        translated=lambda: self._translated(stop),
                        is_whole=is_whole and taker is sink,
                        checksums=checksums_of(answer.headers) if taker is sink else (),
                    )

    def _described(self, key: str, answer: Answer, body: Body) -> StoredObject | None:
        if answer.status not in _GOOD:
            hear_out(body)
        if answer.status in GONE:
            return None
        version, told = listed_version_of(answer.headers), told_by(answer.headers)
        span = span_of(told.span)
        if answer.status == 206:
            if (span.first, span.last) != (0, 0):
                raise self._where.other_range(key)
            size, is_divisible = span.total, bool(version)
            if not read_some(body, 1):  # all that was asked for; the connection is free then
                raise self._where.ended_early(key, 1)
        elif answer.status == 416 and span.total == 0:
            size, is_divisible = 0, True
        elif answer.status == 200:
            size, is_divisible = told.size_bytes, False
        else:
            raise self._refused(answer)
        self._check_encoding(key, answer)
        if size is None:
            missing = "no total in its Content-Range" if answer.status == 206 else "no Content-Length"
            raise InvalidRequest(f"{self.place} does not say how long {key!r} is ({missing}), so it cannot be pulled safely")
        return StoredObject(key, size, version, is_divisible)

    def _check(self, answer: Answer, body: Body, wanted: StoredObject, start: int, length: int) -> None:
        """The body is of the listed version, and begins where it should: a part there, a whole file at its start."""
        if answer.status not in _GOOD:
            hear_out(body)
            raise self._refused(answer, wanted.key)
        is_part = answer.status == 206
        if not is_held_to(wanted.etag, version_of(answer.headers), is_part=is_part):
            raise self._where.other_version(wanted.key, "ETag or date")
        self._check_encoding(wanted.key, answer)
        check_told(told_by(answer.headers), wanted, start, length, self._where, is_part=is_part)

    def _check_encoding(self, key: str, answer: Answer) -> None:
        if encoding := encoding_of(answer.headers, key):
            asked = "in an encoding that nobody asked for"
            raise InvalidRequest(f"{self.place} sends {key!r} {asked} ({encoding}); have the server send the file as it is stored")

    def _refused(self, answer: Answer, key: str | None = None) -> AdapterError:
        return self._where.refused(answer.status, key=key, retry_after=answer.headers.get("Retry-After"))

    def _sent(self, key: str, headers: Mapping[str, str]) -> Answer:
        """The first answer that is not a redirect."""
        url = self._url._replace(path=f"{self._url.path.rstrip('/')}/{quote(key)}")
        web, own_headers = self._own, {name: secret.reveal() for name, secret in self._headers.items()}
        for _ in range(MAX_REDIRECTS + 1):
            answer = self._got(web, url, {**own_headers, **headers})
            if answer.status not in _REDIRECTS:
                return answer
            with answer as body:
                hear_out(body)
            url = self._next(url, answer.headers.get("Location", ""))
            if not is_same_endpoint(origin(url), origin(self._url)):
                web, own_headers = self._others, {}
        raise InvalidRequest(f"{self.place} redirected more than {MAX_REDIRECTS} times")

    def _got(self, web: Web, url: SplitResult, headers: Mapping[str, str]) -> Answer:
        try:
            return web.get(url, headers)
        except (HTTPError, OSError) as error:
            if web is self._own or not root_of(error, DeniedAddress):
                raise
            raise InvalidRequest(f"{self.place} redirected to an address that may not be dialled (REQUEST_ENDPOINTS_DENIED)") from error

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
