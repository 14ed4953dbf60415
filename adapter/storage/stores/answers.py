"""
What an answer of a store means, and its words: the one table of HTTP statuses; the bodies of those that are good; pages of XML.

Status, the store's short error code and the place are named; what a server says never is, for it can
echo a key or a signature.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element, XMLParser, fromstring

from adapter.errors import AdapterError, InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.bucket import PAGE_OBJECTS, Read
from adapter.storage.checksums import Checksum
from adapter.storage.net.failures import CUT, DeniedAddress, TooMuch, Unanswered
from adapter.storage.net.messages import Head
from adapter.storage.secret.merging import StorageConfig

USER_AGENT = "modelmesh-triton-adapter"
"""There are servers that refuse requests without one."""
OK = 200
PARTIAL = 206
GONE = (404, 410)
REDIRECTS = (301, 302, 303, 307, 308)
_DENIED = (401, 403, 407)
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9.]{0,63}")
_SPAN = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)")
_LENGTH = re.compile(r"\d{1,19}")
_PLAIN_FRAMINGS = ("", "identity", "chunked")
_MOST_ATTRIBUTES = 4 * PAGE_OBJECTS
"""Some servers name the language in each row, or the kind of its owner."""
_ATTRIBUTE = re.compile(rb"=\s*[\"']")
_CODE_OF_XML = re.compile(rb"<Code>([^<]*)</Code>")


@dataclass(frozen=True)
class Where:
    """What was asked, as error texts name it."""

    words: str
    """`bucket 'b' at host:port`"""
    config: StorageConfig
    """That led here."""
    url: str
    credentials: str = ""
    """What requests are made with: `the service account key`, `no credentials`…"""

    def refused(self, head: Head, code: str = "", *, key: str | None = None, kind: type[AdapterError] | None = None) -> AdapterError:
        """
        The meaning of an error answer.

        Args:
            head: of the answer.
            code: the store's short error code, or whatever it has in its place.
            key: the listed object that was read; None for a listing.
            kind: what the code means, where it says more than the status does.
        """
        status, is_code = head.status, _CODE.fullmatch(code) is not None
        named = f"{code}, HTTP {status}" if is_code else f"HTTP {status}"
        kind = kind or _kind_of(status, is_listed=key is not None)
        if kind is SourceDenied:
            return SourceDenied(f"{self.words} denied access {self._made_with()} ({named})")
        if kind is SourceChanged and key is not None:
            return self.changed(key, named, "has gone" if status in GONE else "was replaced")
        if kind is SourceNotFound:
            return SourceNotFound(f"there is no {self.words} ({named})")
        if kind is SourceUnavailable:
            seconds = _seconds(head.headers.get("retry-after", ""))
            return SourceUnavailable(f"{self.words} cannot be read now ({named})", retry_after_seconds=seconds, cause=named)
        return InvalidRequest(f"{self.words} refused the request ({named}){'' if is_code else self._hint}")

    def unreachable(self, failure: Unanswered) -> AdapterError:
        """The meaning of a request that got no whole answer."""
        cause = str(failure)
        if isinstance(failure, DeniedAddress):
            return InvalidRequest(f"{self.words} cannot be asked: {cause}; storage_params may not name this endpoint")
        problem = "cannot be used" if isinstance(failure, TooMuch) else "cannot be reached"
        hint = self._hint if cause == CUT else ""
        return SourceUnavailable(f"{self.words} {problem}: {cause}{hint}", can_pass=failure.can_pass, cause=cause)

    def wrong(self, what: str) -> SourceUnavailable:
        """An answer that is not what was asked for, which can pass: `ended the body of 'k' 5 bytes early`."""
        return SourceUnavailable(f"{self.words} {what}")

    def other_range(self, key: str) -> SourceUnavailable:
        """The body has other bytes than the bytes that were asked for."""
        return self.wrong(f"did not answer the range of {key!r} that was asked for")

    def changed(self, key: str, why: str, what: str = "was replaced") -> SourceChanged:
        """The object is not the listed one. `why`: `another ETag`."""
        return SourceChanged(f"{key!r} {what} after the listing ({self.words}, {why})")

    def _made_with(self) -> str:
        label = self.config.label
        if self.config.is_unsigned:
            return f"without credentials: the credentials of {label} do not belong to the place that storage_params names"
        return f"with {self.credentials} of {label}"

    @property
    def _hint(self) -> str:
        """A port for https answers plain http with a bare 400, or hangs up."""
        return "; is the endpoint https?" if self.url.startswith("http:") else ""


def etag_of(text: str | None) -> str:
    """An ETag without its quotes and its mark of weakness; empty where there is none."""
    return (text or "").removeprefix("W/").strip('"')


def is_passing(status: int) -> bool:
    """Whether the same request may be answered another time."""
    return status >= 500 or status in (408, 425, 429)


def _kind_of(status: int, *, is_listed: bool) -> type[AdapterError]:
    if status in _DENIED:
        return SourceDenied
    if status in GONE:
        return SourceChanged if is_listed else SourceNotFound
    if is_listed and status in (412, 416):
        return SourceChanged
    return SourceUnavailable if is_passing(status) else InvalidRequest


def _seconds(retry_after: str) -> float | None:
    """A `Retry-After` in seconds, at most a year; its other form, a date, needs a clock that is right."""
    text = retry_after.strip()
    return min(float(text), 366 * 24 * 3600.0) if text.isascii() and text.isdecimal() else None


Check = Callable[[Head, Read], None]
Checksums = Callable[[Mapping[str, str]], Sequence[Checksum]]


class Body:
    """
    A sink of the engine, for a body on its way: only the bytes that were asked for, of the version that was listed.

    Its own failures are SourceErrors; those of the read go through.

    Raises (from its methods, and so from `Engine.fetch`):
        SourceChanged: another version, or another size.
        SourceUnavailable: another range, no version, fewer or more bytes.
    """

    def __init__(self, read: Read, where: Where, check: Check, checksums: Checksums) -> None:
        """
        Args:
            read: what was asked for; gets its bytes.
            where: for the words of a failure.
            check: of the store: raises for an answer that is not of the version, or not the part, that was asked for.
            checksums: of the whole object, from the headers of the answer.
        """
        self._read, self._where, self._check, self._checksums = read, where, check, checksums
        self._unwanted = 0
        """Bytes before the part, where the store sends the object from its start."""
        self._is_framed = True

    def begin(self, head: Head) -> None:
        """As `Sink`."""
        read, headers = self._read, head.headers
        self._check(head, read)
        framing, length = headers.get("transfer-encoding", "").strip().lower(), length_of(headers)
        if framing not in _PLAIN_FRAMINGS:
            raise self._where.other_range(read.wanted.key)
        if head.status != PARTIAL and "content-range" not in headers:
            self._check_size(length)
            self._unwanted = read.next
        else:
            first, last, total = span_of(headers)
            self._check_size(total)
            is_plain = not headers.get("content-type", "").strip().lower().startswith("multipart/byteranges")
            if not is_plain or (first, last) != (read.next, read.last) or length not in (None, read.missing):
                raise self._where.other_range(read.wanted.key)
        self._is_framed = length is not None and not framing
        read.expect(self._checksums(headers))

    def take(self, chunk: memoryview) -> None:
        """As `Sink`. No other try goes on where there is too much: all wanted bytes may have come."""
        skipped, missing = min(self._unwanted, len(chunk)), self._read.missing
        self._unwanted -= skipped
        chunk = chunk[skipped:]
        if len(chunk) > missing and not self._is_framed:
            text = f"{self._where.words} sent more than was asked for of {self._read.wanted.key!r}"
            raise SourceUnavailable(text, can_pass=False)
        if chunk := chunk[:missing]:  # behind it the rest of the object may come
            self._read.give(chunk)

    def end(self) -> None:
        """As `Sink`."""
        if missing := self._read.missing:
            raise self._where.wrong(f"ended the body of {self._read.wanted.key!r} {missing} bytes early")
        self._read.end()

    def _check_size(self, size_bytes: int | None) -> None:
        wanted = self._read.wanted
        if size_bytes is not None and size_bytes != wanted.size_bytes:
            raise self._where.changed(wanted.key, f"the object has {size_bytes} bytes, and had {wanted.size_bytes}")


def span_of(headers: Mapping[str, str]) -> tuple[int | None, ...]:
    """First byte, last byte and length of the whole from `Content-Range`; each None when the server does not say."""
    match = _SPAN.fullmatch(headers.get("content-range", "").strip())
    return tuple(None if text in (None, "*") else int(text) for text in (match.groups() if match else (None, None, None)))


def length_of(headers: Mapping[str, str]) -> int | None:
    """`Content-Length`; None when it cannot be read. The same number more than once is one: RFC 9110, 8.6."""
    values = {value.strip() for value in headers.get("content-length", "").split(",")}
    text = values.pop()
    return int(text) if not values and _LENGTH.fullmatch(text) else None


def code_in(head: Head) -> str:
    """
    The short code of an error answer; empty where it has none.

    Source: Amazon S3 API Reference, Error responses; Azure Storage, Status and error codes.
    """
    found = _CODE_OF_XML.search(head.body)
    return found[1].decode(errors="replace") if found else head.headers.get("x-ms-error-code", "")


def parsed(document: bytes, root: str, *, most_tags: int) -> Element:
    """
    The root of a listing of XML, without namespaces, in time linear in its length.

    A document of a few MiB can become a hundred in a parser: with a million empty elements, with as many attributes, with entities.

    Args:
        document: UTF-8.
        root: its name.
        most_tags: opening and closing ones.

    Raises:
        ParseError: not XML.
        ValueError: another document, or more than a page can have.
    """
    if document.count(b"<") > most_tags or sum(1 for _ in _ATTRIBUTE.finditer(document)) > _MOST_ATTRIBUTES:
        raise ValueError("more than a page can have")
    if b"\0" in document or b"<!DOCTYPE" in document or b"<!ENTITY" in document:
        raise ValueError("entities, or UTF-16: the one other encoding that the parser takes")
    found = fromstring(document, XMLParser(encoding="utf-8"))  # noqa: S314 - see above
    for element in found.iter():
        element.tag = element.tag.rpartition("}")[2]
    if found.tag != root:
        raise ValueError("another document")
    return found


def texts_of(element: Element, names: Container[str]) -> dict[str, str]:
    """The texts of the children of these names. Raises ValueError: one comes twice."""
    found = [(child.tag, child.text or "") for child in element if child.tag in names]
    if len(texts := dict(found)) < len(found):
        raise ValueError("a field that comes twice")
    return texts
