"""
Web servers (`type: http`) seen as buckets: the fields of a storage config, and how files are looked at and read.

Source of the key names: the Go adapter's `pullman/storageproviders/http/provider.go`.

A web server has no listings: a page shows the one file whose path is exactly the prefix, or nothing.
What it has is learned by asking for the first byte, which also tells whether it can give ranges;
HEAD is not used, because signed URLs are signed for GET. A file whose server names no version of it is read
whole, in one answer. Redirects are followed by us, a few; stored headers and the client certificate go to the
configured server only, and not any more once a redirect has led away from it; its addresses are checked then,
because the server alone has chosen them. Queries never appear in a text: they may be signatures.

A version is a strong ETag, or else a weak one, or else the date of the last change; the last two can
miss a change within their grain, which the length of the file then has to tell. No condition is sent: each answer's
head is compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from email.utils import parsedate_to_datetime
from functools import partial
from urllib.parse import SplitResult, parse_qsl, quote, urljoin, urlsplit

from adapter.errors import InvalidRequest
from adapter.storage.bucket import PAGE_OBJECTS, Page, Read, StoredObject
from adapter.storage.checksums import Checksum, readable
from adapter.storage.net.failures import DeniedAddress, Unanswered
from adapter.storage.net.messages import Access, Head, Request, proxy_for
from adapter.storage.secret.fields import Secret, check_client_pem, checked_endpoint, is_same_endpoint, is_same_origin, origin
from adapter.storage.secret.merging import Binding, StorageConfig
from adapter.storage.stores.answers import GONE, OK, PARTIAL, REDIRECTS, USER_AGENT, Body, Where, etag_of, length_of, span_of
from adapter.storage.stores.clients import Client, Connection, Means, fields_of
from adapter.storage.stores.cloud import PAGE_BYTES

_OF_CLIENT = Binding(credentials=("client_certificate", "client_key"), whole=(("client_certificate", "client_key"),))
BINDING = Binding(
    places={"url": is_same_origin},
    credentials=("headers", *_OF_CLIENT.credentials),
    whole=(("headers",), _OF_CLIENT.credentials),
    collection="headers",
    fixed=("headers.host",),
)
SIGNATURE_CHARACTERS = 12
"""A value of a query that is shorter may be an ordinary word (`format=binary`), which must not vanish from all texts."""
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_OURS = frozenset({
    "accept-encoding", "connection", "content-length", "if-match", "if-modified-since", "if-none-match", "if-range",
    "if-unmodified-since", "range", "transfer-encoding",
})  # fmt: skip
MAX_REDIRECTS = 5
_GZIP = ("gzip", "x-gzip")
_NO_CODINGS = ("", "aws-chunked", "binary", "chunked", "identity", "none", "utf-8")
"""Of the body as it is: some are put there by mistake, `aws-chunked` by S3 clients, whose servers store it."""


def connection(config: StorageConfig) -> Connection:
    """
    The connection fields of a storage config; headers and URL go with each request. Blocks: a CA bundle may be a file.

    Raises InvalidRequest, with the field's name.
    """
    made = Connection(**fields_of(config, _OF_CLIENT, "url"))
    if made.keys:
        check_client_pem(_client_pem(made), config.label)
    return made


def _client_pem(connection: Connection) -> str:
    return "".join(f"{secret.reveal()}\n" for _, secret in connection.keys)


def url_of(config: StorageConfig) -> SplitResult:
    """The URL that model paths are joined to; the query goes with every request, and may be a secret. Raises InvalidRequest."""
    text = config.text("url")
    if text is None:
        raise InvalidRequest(f"no url: neither {config.label} nor storage_params has one, expected for instance url: https://host/models")
    url = urlsplit(checked_endpoint(text, config.label, "url", query=True))
    for value in (url.query, *(value for _, value in parse_qsl(url.query) if len(value) >= SIGNATURE_CHARACTERS)):
        Secret(value)
    return url


def headers_of(config: StorageConfig) -> dict[str, Secret]:
    """
    Headers that go with each request, by lower-case name: an object of strings or lists of strings.

    Raises:
        InvalidRequest: not that, or a header that is not the user's to set.
    """
    given = config.values.get("headers") or {}
    if not isinstance(given, Mapping):
        raise InvalidRequest(f'{config.label}: headers is not an object; write "headers.Authorization": "…" for each')
    headers = {}
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        if not _TOKEN.fullmatch(name) or name.lower() in _OURS:
            raise InvalidRequest(f"{config.label}: headers has {name[:80]!r}, which is not a header that can be set")
        if not all(isinstance(each, str) and not set(each) & set("\r\n\0") and each.isascii() for each in values):
            raise InvalidRequest(f"{config.label}: headers.{name} is not a text of one line, or a list of them")
        for each in values:
            Secret(each.rpartition(" ")[2])  # the token behind `Bearer` is a secret of its own
        headers[name.lower()] = Secret(", ".join(values))
    return headers


def client(connection: Connection, means: Means) -> Client:
    """As `BucketStore.client`."""
    return partial(HttpBucket, connection, means)


class HttpBucket:
    """One web server, from one URL on. See `Bucket` for the contract."""

    kind = "http"

    def __init__(self, connection: Connection, means: Means, config: StorageConfig) -> None:
        """Raises InvalidRequest: the URL or the headers are none."""
        self._engine = means.engine
        trust = replace(connection.trust, client_pem=_client_pem(connection) or None)
        self._own = Access(trust, means.guard_of(connection))
        self._redirected = Access(connection.trust, means.guard)
        """To a server that only a redirect names."""
        self._url = url_of(config)
        headers = headers_of(config)
        self._headers = {name: secret.reveal() for name, secret in headers.items()}
        self.place = self.words = f"{origin(self._url)}{self._url.path.rstrip('/')}"
        self.endpoint = self._url.netloc
        self._where = Where(self.words, config, origin(self._url), "the headers" if headers else "no headers")

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """As the Protocol says, as far as a web server can."""
        if by_folder or token or not prefix or prefix.endswith("/"):
            return Page(objects=())
        first = _FirstByte()
        try:
            head = await self._sent(prefix, {"Range": "bytes=0-0"}, first, PAGE_BYTES)
        except _EnoughError:
            head = first.head
        return Page(objects=() if head.status in GONE else (self._described(prefix, head, has_come=first.has_come),))

    async def read(self, reads: Sequence[Read]) -> None:
        """As the Protocol says. A server without ranges is read from its start on; what comes before is thrown away."""
        for read in (read for read in reads if read.missing):
            wanted, body = read.wanted, Body(read, self._where, self._check, _checksums_of)
            headers = {"Range": read.range} if wanted.is_divisible and read.missing < wanted.size_bytes else {}
            head = await self._sent(wanted.key, headers, body, wanted.size_bytes + PAGE_BYTES, written=read.written_bytes)
            if head.status not in (OK, PARTIAL):
                raise self._where.refused(head, key=wanted.key)

    def _described(self, key: str, head: Head, *, has_come: bool) -> StoredObject:
        """The file, from the answer to a request for its first byte."""
        version, (first, last, size), is_divisible = _version_of(head.headers, is_listed=True), span_of(head.headers), False
        missing = "no total in its Content-Range"
        if head.status == PARTIAL:
            if (first, last) != (0, 0):
                raise self._where.other_range(key)
            if not has_come:
                raise self._where.wrong(f"ended the body of {key!r} 1 bytes early")
            is_divisible = bool(version)
        elif head.status == 416 and size == 0:
            is_divisible = True
        elif head.status == OK:
            size, missing = length_of(head.headers), "no Content-Length"
        else:
            raise self._where.refused(head)
        self._check_encoding(key, head)
        if size is None:
            raise InvalidRequest(f"{self.place} does not say how long {key!r} is ({missing}), so it cannot be pulled safely")
        return StoredObject(key, size, version, is_divisible)

    def _check(self, head: Head, read: Read) -> None:
        """The body is of the listed version, as far as there is one."""
        if read.wanted.etag and _version_of(head.headers) != read.wanted.etag:
            raise self._where.changed(read.wanted.key, "another ETag or date")
        self._check_encoding(read.wanted.key, head)

    def _check_encoding(self, key: str, head: Head) -> None:
        """
        Raise InvalidRequest: the body differs from the file as it is stored.

        Web servers are told by the end of a name that a file is compressed (Apache's `AddEncoding x-gzip .gz .tgz`), and send
        the file as it is, so there the word says nothing.
        """
        given = ",".join(head.headers.get(name, "") for name in ("content-encoding", "transfer-encoding")).lower()
        codings = [coding for part in given.split(",") if (coding := part.strip()) not in _NO_CODINGS]
        if codings and not (key.lower().endswith((".gz", ".tgz")) and set(codings) <= set(_GZIP)):
            why = "in an encoding that was not asked for; have the server send the file as it is stored"
            raise InvalidRequest(f"{self.place} sends {key!r} {why}")

    async def _sent(self, key: str, headers: Mapping[str, str], sink: Body | _FirstByte, most_bytes: int, *, written: int = 0) -> Head:
        """The first answer that is not a redirect."""
        url = self._url._replace(path=f"{self._url.path.rstrip('/')}/{quote(key)}")
        is_own = True
        for _ in range(MAX_REDIRECTS + 1):
            access = replace(self._own if is_own else self._redirected, proxy=proxy_for(url.geturl()))
            given = {"User-Agent": USER_AGENT, **(self._headers if is_own else {}), **headers, "Accept-Encoding": "identity"}
            try:
                head = await self._engine.fetch(Request(url.geturl(), given, access, most_bytes, sink, written))
            except Unanswered as failure:
                if isinstance(failure, DeniedAddress) and not is_own:
                    denied = "to an address that may not be dialled (REQUEST_ENDPOINTS_DENIED)"
                    raise InvalidRequest(f"{self.place} redirected {denied}") from failure
                raise self._where.unreachable(failure) from failure
            if head.status not in REDIRECTS:
                return head
            url = self._next(url, head.headers.get("location", ""))
            is_own = is_own and is_same_endpoint(origin(url), origin(self._url))
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


class _EnoughError(Exception):
    """The answer is whole as far as it is wanted."""


class _FirstByte:
    """Takes one byte, or the head alone where the server knows no ranges."""

    head, has_come = Head(), False

    def begin(self, head: Head) -> None:
        """As `Sink`. Raises `_EnoughError`: of the whole file the head is enough."""
        self.head = head
        if head.status == OK:
            raise _EnoughError

    def take(self, chunk: memoryview) -> None:
        """As `Sink`. Raises `_EnoughError`: more would come than was asked for."""
        self.has_come = True
        if self.head.headers.get("content-length") != "1":
            raise _EnoughError

    def end(self) -> None:
        """As `Sink`."""


def _version_of(headers: Mapping[str, str], *, is_listed: bool = False) -> str:
    """
    Opaque text, without quotes and weak marks; empty when the server tells nothing.

    `is_listed`: the file is asked for the first time. Then the date of a change in the second of the answer is no
    version, for another change in that second would have the same date. Source: RFC 9110, 8.8.2.2.
    """
    if etag := headers.get("etag", "").strip():
        return f"{'weak-' if etag.startswith('W/') else ''}{etag_of(etag)}"
    changed = _seconds(headers.get("last-modified"))
    if changed is None or (is_listed and changed == _seconds(headers.get("date"))):
        return ""
    return f"modified-{changed}"


def _checksums_of(headers: Mapping[str, str]) -> tuple[Checksum, ...]:
    """Of the whole file, also with a part of it: `Repr-Digest: sha-256=:…:`. Source: RFC 9530, 3."""
    pairs = (each.strip().partition("=") for each in headers.get("repr-digest", "").split(","))
    return readable((name.replace("-", ""), text[1:-1]) for name, _, text in pairs if text[:1] == text[-1:] == ":")


def _seconds(date: str | None) -> int | None:
    try:
        return None if date is None else int(parsedate_to_datetime(date).timestamp())
    except (ValueError, OverflowError):
        return None
