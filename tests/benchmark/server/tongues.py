"""
What a request means in the language of each store, and the answer: S3, Google's JSON, Azure Blob.

The first part of the path tells the language: `/storage/…` and `/download/…` are Google's, `/account/…` is Azure's,
everything else is `/bucket/key` of S3. Any bucket has all objects, and no signature is looked at.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from urllib.parse import parse_qs, quote, unquote
from xml.sax.saxutils import escape

from tests.benchmark.server.stock import PAGE_OBJECTS, Item, Page, Stock, checksum

ACCOUNT = "account"
WRITTEN = formatdate(1_700_000_000, usegmt=True)
CHECKSUMS = ("crc32", "crc32c", "crc64nvme", "sha256", "md5")
_CRCS = CHECKSUMS[:3]
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_XML = '<?xml version="1.0" encoding="UTF-8"?>\n'
Query = Mapping[str, str]


@dataclass(frozen=True)
class Asked:
    """One request. Names of headers are in lower case."""

    method: str
    path: str
    query: Query
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Answer:
    """What goes back: a text, or a range of an object."""

    status: int
    kind: str = "list"
    """What it is counted as."""
    headers: Mapping[str, str] = field(default_factory=dict)
    text: bytes = b""
    item: Item | None = None
    start: int = 0
    length: int = 0

    @property
    def body_bytes(self) -> int:
        """Length of the body."""
        return self.length if self.item is not None else len(self.text)


def asked(target: str, method: str, headers: Mapping[str, str]) -> Asked:
    """A request whose path is still quoted."""
    path, _, query = target.partition("?")
    found = {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()} if query else {}
    return Asked(method, path, found, headers)


class Tongues:
    """Answers of all stores over one stock."""

    def __init__(self, stock: Stock, checksums: str = "") -> None:
        """`checksums`: one of `CHECKSUMS`, told where the store would tell that of the whole object; nothing without it."""
        self._stock = stock
        self.checksums = checksums

    def answer(self, request: Asked) -> Answer:
        """To any request."""
        first, _, rest = request.path.lstrip("/").partition("/")
        if first == "storage":
            return self._gcs_list(request.query) if rest.endswith("/o") else self._gcs_read(request, rest)
        if first == "download":
            return self._gcs_read(request, rest)
        if first == ACCOUNT:
            container, _, key = rest.partition("/")
            return self._azure_list(request.query, container) if request.query.get("comp") == "list" else self._azure_read(request, key)
        return self._s3_read(request, unquote(rest)) if rest else self._s3_list(request.query, first)

    def _read(self, request: Asked, key: str, headers: Query | None = None) -> Answer:
        """A GET or HEAD of an object, as all stores agree on it."""
        kind = "head" if request.method == "HEAD" else "get"
        item = self._stock.items.get(key)
        if item is None:
            return Answer(404, kind, text=b"<Error><Code>NoSuchKey</Code></Error>")
        etag = f'"{item.etag}"'
        if request.headers.get("if-match", etag) not in (etag, "*"):
            return Answer(412, kind, text=b"<Error><Code>PreconditionFailed</Code></Error>")
        told = {"ETag": etag, "Last-Modified": WRITTEN, "Accept-Ranges": "bytes", **(headers or {})}
        wanted = request.headers.get("x-ms-range") or request.headers.get("range")
        if not wanted:
            return Answer(200, kind, told, item=item, length=item.size_bytes)
        span = _span(wanted, item.size_bytes)
        if span is None:
            return Answer(416, kind, {"Content-Range": f"bytes */{item.size_bytes}"})
        start, end = span
        told["Content-Range"] = f"bytes {start}-{end}/{item.size_bytes}"
        return Answer(206, kind, told, item=item, start=start, length=end - start + 1)

    def _s3_read(self, request: Asked, key: str) -> Answer:
        headers = {"x-amz-request-id": "0123456789ABCDEF", "Server": "bench"}
        item = self._stock.items.get(key)
        is_asked = request.headers.get("x-amz-checksum-mode", "").upper() == "ENABLED"
        if item is not None and self.checksums in CHECKSUMS[:4] and is_asked and "range" not in request.headers:
            headers |= {f"x-amz-checksum-{self.checksums}": self._told(item), "x-amz-checksum-type": "FULL_OBJECT"}
        return self._read(request, key, headers)

    def _s3_list(self, query: Query, bucket: str) -> Answer:
        prefix = query.get("prefix", "")
        page = self._page(query, "continuation-token")
        is_quoted = query.get("encoding-type") == "url"

        def name(text: str) -> str:
            return quote(text, safe="/") if is_quoted else escape(text)

        promise = f"<ChecksumAlgorithm>{self.checksums.upper()}</ChecksumAlgorithm><ChecksumType>FULL_OBJECT</ChecksumType>"
        rows = [
            f"<Contents><Key>{name(item.key)}</Key><LastModified>2023-11-14T22:13:20.000Z</LastModified><ETag>&quot;{item.etag}&quot;</ETag>"
            f"{promise if self.checksums in _CRCS else ''}<Size>{item.size_bytes}</Size><StorageClass>STANDARD</StorageClass></Contents>"
            for item in page.items
        ]
        rows += [f"<CommonPrefixes><Prefix>{name(folder)}</Prefix></CommonPrefixes>" for folder in page.folders]
        if page.next_after is not None:
            rows.append(f"<NextContinuationToken>{_packed(page.next_after)}</NextContinuationToken>")
        head = f"<Name>{escape(bucket)}</Name><Prefix>{name(prefix)}</Prefix><MaxKeys>{PAGE_OBJECTS}</MaxKeys>"
        head += "<EncodingType>url</EncodingType>" if is_quoted else ""
        head += f"<KeyCount>{len(page.items) + len(page.folders)}</KeyCount>"
        end = f"<IsTruncated>{'false' if page.next_after is None else 'true'}</IsTruncated>"
        return _xml(f'<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{head}{end}{"".join(rows)}</ListBucketResult>')

    def _gcs_list(self, query: Query) -> Answer:
        page = self._page(query, "pageToken")
        rows = [
            {"name": item.key, "size": str(item.size_bytes), "generation": item.generation}
            | ({"crc32c": self._told(item)} if self.checksums == "crc32c" and "crc32c" in query.get("fields", "crc32c") else {})
            for item in page.items
        ]
        found: dict[str, object] = {"items": rows} if rows else {}
        found |= {"prefixes": list(page.folders)} if page.folders else {}
        found |= {"nextPageToken": _packed(page.next_after)} if page.next_after is not None else {}
        return Answer(200, "list", {"Content-Type": "application/json; charset=UTF-8"}, json.dumps(found).encode())

    def _gcs_read(self, request: Asked, rest: str) -> Answer:
        key = unquote(rest.partition("/o/")[2])
        item = self._stock.items.get(key)
        if item is None or request.query.get("generation", item.generation) != item.generation:
            return Answer(404, "get", text=b"Not Found")
        headers = {
            "X-Goog-Generation": item.generation,
            "X-Goog-Stored-Content-Encoding": "identity",
            "X-Goog-Stored-Content-Length": str(item.size_bytes),
        }
        if self.checksums in ("crc32c", "md5"):
            headers["X-Goog-Hash"] = f"{self.checksums}={self._told(item)}"
        return self._read(request, key, headers)

    def _azure_read(self, request: Asked, key: str) -> Answer:
        headers = {"x-ms-blob-type": "BlockBlob", "x-ms-version": "2023-11-03"}
        item = self._stock.items.get(unquote(key))
        if item is not None and self.checksums == "md5":
            headers["x-ms-blob-content-md5"] = self._told(item)
        return self._read(request, unquote(key), headers)

    def _azure_list(self, query: Query, container: str) -> Answer:
        page = self._page(query, "marker")
        rows = [
            f"<Blob><Name>{escape(item.key)}</Name><Properties><Last-Modified>{WRITTEN}</Last-Modified><Etag>{item.etag}</Etag>"
            f"<Content-Length>{item.size_bytes}</Content-Length><BlobType>BlockBlob</BlobType></Properties><Metadata/></Blob>"
            for item in page.items
        ]
        rows += [f"<BlobPrefix><Name>{escape(folder)}</Name></BlobPrefix>" for folder in page.folders]
        end = f"<NextMarker>{_packed(page.next_after)}</NextMarker>" if page.next_after is not None else "<NextMarker/>"
        return _xml(f'<EnumerationResults ContainerName="{escape(container)}"><Blobs>{"".join(rows)}</Blobs>{end}</EnumerationResults>')

    def _page(self, query: Query, token: str) -> Page:
        """What follows the token, 1,000 rows however few are asked for, as some small servers answer."""
        after = base64.urlsafe_b64decode(query.get(token, "")).decode()
        return self._stock.page(query.get("prefix", ""), query.get("delimiter", ""), after)

    def _told(self, item: Item) -> str:
        return base64.b64encode(checksum(item, self.checksums)).decode()


def _span(wanted: str, size_bytes: int) -> tuple[int, int] | None:
    """First and last byte; None when there are none of them."""
    match = _RANGE.fullmatch(wanted.strip())
    if match is None or not any(match.groups()):
        return None
    first, last = match.groups()
    start = int(first) if first else max(0, size_bytes - int(last))
    end = min(int(last), size_bytes - 1) if first and last else size_bytes - 1
    return (start, end) if start <= end else None


def _packed(after: str) -> str:
    return base64.urlsafe_b64encode(after.encode()).decode()


def _xml(text: str) -> Answer:
    return Answer(200, "list", {"Content-Type": "application/xml"}, (_XML + text).encode())
