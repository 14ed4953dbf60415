"""The body of an answer on its way to its sink: only the bytes that were asked for, of the version that was listed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.storage.bucket import FileSink, Read, StoredObject
from adapter.storage.checksums import Checksum
from adapter.storage.net.messages import Head
from adapter.storage.stores.answers import Where

_SPAN = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)")
_LENGTH = re.compile(r"\d{1,19}")
_PLAIN_FRAMINGS = ("", "identity", "chunked")
PARTIAL = 206
Tell = Callable[[Mapping[str, str]], Sequence[Checksum]]
"""Headers of an answer → checksums of the whole object."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """Bytes of one object that are asked for."""

    wanted: StoredObject
    start: int
    length: int

    @property
    def is_whole(self) -> bool:
        """All of the object."""
        return (self.start, self.length) == (0, self.wanted.size_bytes)

    @classmethod
    def left_of(cls, read: Read) -> Part:
        """What has not come."""
        return cls(wanted=read.wanted, start=read.start + read.taken, length=read.length - read.taken)

    @property
    def range(self) -> str:
        """As the value of `Range`."""
        return f"bytes={self.start}-{self.start + self.length - 1}"


def left_of(reads: Sequence[Read]) -> Iterator[Read]:
    """Those of which bytes are missing."""
    return (read for read in reads if read.taken < read.length)


def written_bytes(read: Read) -> int:
    """That go to a disk."""
    return read.length if isinstance(read.sink, FileSink) and read.sink.writes else 0


class Body:
    """
    A sink of the engine. Its own failures are SourceErrors; those of the sink behind it go through.

    Raises (from its methods, and so from `Engine.fetch`):
        SourceChanged: another version, or another size.
        SourceUnavailable: another range, no version, fewer or more bytes.
    """

    def __init__(self, part: Part, read: Read, where: Where, *, check: Callable[[Head], None], checksums: Tell) -> None:
        """
        Args:
            part: what was asked for.
            read: gets its bytes.
            where: for the words of a failure.
            check: of the store: raises for an answer that is not of the version, or not the part, that was asked for.
            checksums: of the whole object, from the headers of the answer.
        """
        self._part = part
        self._read = read
        self._where = where
        self._check = check
        self._checksums = checksums
        self._unwanted = 0
        """Bytes before the part, where the store sends the object from its start."""
        self._missing = part.length
        self._held: bytes | None = None
        self._is_framed = True

    def begin(self, head: Head) -> None:
        """As `Sink`."""
        part = self._part
        self._check(head)
        is_part = head.status == PARTIAL or "content-range" in head.headers
        told = told_by(head.headers)
        check_told(told, part, self._where, is_part=is_part)
        self._unwanted = 0 if is_part else part.start
        self._is_framed = told.size_bytes is not None and not (told.framing or "").strip()
        if isinstance(self._read.sink, FileSink):
            self._read.sink.expect(self._checksums(head.headers))

    def take(self, chunk: memoryview) -> None:
        """As `Sink`. Without a length the last bytes are held until the end shows that no others follow."""
        if self._unwanted:
            skipped = min(self._unwanted, len(chunk))
            self._unwanted -= skipped
            chunk = chunk[skipped:]
            if not chunk:
                return
        part = self._part
        if len(chunk) > self._missing:
            if self._is_framed and part.start + part.length < part.wanted.size_bytes:  # the rest of the object
                chunk = chunk[: self._missing]
            else:
                raise self._where.went_on(part.wanted.key)
        self._missing -= len(chunk)
        if not self._missing and not self._is_framed:
            self._held = bytes(chunk)
        elif chunk:
            self._read.give(chunk)

    def end(self) -> None:
        """As `Sink`."""
        if self._missing:
            raise self._where.ended_early(self._part.wanted.key, self._missing)
        if self._held is not None:
            self._read.give(self._held)
        self._read.end()


@dataclass(frozen=True)
class Told:
    """What the headers of an answer say of its body."""

    length: str | None
    """`Content-Length`."""
    span: str | None
    """`Content-Range`."""
    kind: str | None
    """`Content-Type`."""
    framing: str | None
    """`Transfer-Encoding`."""

    @property
    def size_bytes(self) -> int | None:
        """Of the body; None when the server does not say."""
        return length_of(self.length)


def told_by(headers: Mapping[str, str]) -> Told:
    """What headers say, whose names are in lower case."""
    return Told(*(headers.get(name) for name in ("content-length", "content-range", "content-type", "transfer-encoding")))


class Span(NamedTuple):
    """Of a part, from its `Content-Range`; each None when the server does not say."""

    first: int | None
    last: int | None
    total: int | None


def span_of(content_range: str | None) -> Span:
    """What the header says, as far as it can be read."""
    match = _SPAN.fullmatch((content_range or "").strip())
    first, last, total = match.groups() if match else (None, None, None)
    return Span(*(None if text in (None, "*") else int(text) for text in (first, last, total)))


def length_of(content_length: str | None) -> int | None:
    """What the header says; None when it cannot be read. The same number more than once is one: RFC 9110, 8.6."""
    values = {value.strip() for value in (content_length or "").split(",")}
    text = values.pop()
    return int(text) if not values and _LENGTH.fullmatch(text) else None


def check_told(told: Told, part: Part, where: Where, *, is_part: bool) -> None:
    """
    Compare what the headers say with the part, or the whole, that was asked for.

    Raises:
        SourceUnavailable: the body is another part, or the headers contradict each other.
        SourceChanged: the body is (a part) of an object of another length.
    """
    wanted = part.wanted
    if (told.framing or "").strip().lower() not in _PLAIN_FRAMINGS:
        raise where.other_range(wanted.key)
    if not is_part:
        check_size(told.size_bytes, wanted, where)
        if told.span is None:
            return
    span = span_of(told.span)
    check_size(span.total, wanted, where)
    is_plain = not (told.kind or "").strip().lower().startswith("multipart/byteranges")
    if not is_plain or (span.first, span.last) != (part.start, part.start + part.length - 1) or told.size_bytes not in (None, part.length):
        raise where.other_range(wanted.key)


def check_size(size_bytes: int | None, wanted: StoredObject, where: Where) -> None:
    """Raise SourceChanged when the whole object has another length than the listed one."""
    if size_bytes is not None and size_bytes != wanted.size_bytes:
        raise where.other_size(wanted, size_bytes)
