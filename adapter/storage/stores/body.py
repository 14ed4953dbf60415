"""The body of an answer on its way to its sink: only the bytes that were asked for, of the version that was listed."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

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
    def last(self) -> int:
        """Position of the last byte."""
        return self.start + self.length - 1

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
        return f"bytes={self.start}-{self.last}"


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
        part, headers = self._part, head.headers
        self._check(head)
        framing, length = headers.get("transfer-encoding", "").strip().lower(), length_of(headers)
        if framing not in _PLAIN_FRAMINGS:
            raise self._where.other_range(part.wanted.key)
        is_part = head.status == PARTIAL or "content-range" in headers
        if not is_part:
            self._check_size(length)
        else:
            first, last, total = span_of(headers)
            self._check_size(total)
            is_plain = not headers.get("content-type", "").strip().lower().startswith("multipart/byteranges")
            if not is_plain or (first, last) != (part.start, part.last) or length not in (None, part.length):
                raise self._where.other_range(part.wanted.key)
        self._unwanted = 0 if is_part else part.start
        self._is_framed = length is not None and not framing
        if isinstance(self._read.sink, FileSink):
            self._read.sink.expect(self._checksums(headers))

    def take(self, chunk: memoryview) -> None:
        """As `Sink`. Without a length the last bytes are held until the end shows that no others follow."""
        skipped = min(self._unwanted, len(chunk))
        self._unwanted -= skipped
        chunk = chunk[skipped:]
        part = self._part
        if len(chunk) > self._missing:
            if not self._is_framed or part.last + 1 == part.wanted.size_bytes:
                raise self._where.wrong(f"sent more than was asked for of {part.wanted.key!r}")
            chunk = chunk[: self._missing]  # the rest of the object
        if not chunk:
            return
        self._missing -= len(chunk)
        if not self._missing and not self._is_framed:
            self._held = bytes(chunk)
        else:
            self._read.give(chunk)

    def end(self) -> None:
        """As `Sink`."""
        if self._missing:
            raise self._where.ended_early(self._part.wanted.key, self._missing)
        if self._held is not None:
            self._read.give(self._held)
        self._read.end()

    def _check_size(self, size_bytes: int | None) -> None:
        wanted = self._part.wanted
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
