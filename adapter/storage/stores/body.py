"""A body on its way to the sink, and whether the body is the one that was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from urllib3.exceptions import HTTPError

from adapter.storage.bucket import FileSink, Sink, StoredObject
from adapter.storage.checksums import Checksum
from adapter.storage.stores.answers import Where
from adapter.storage.wire.gets import Body, read_some
from adapter.storage.wire.moving import move
from adapter.storage.wire.plain import PlainBody
from adapter.workers import Stop

CHUNK_BYTES = 256 * 1024
"""Most bytes in memory per read. Larger ones were measured to be no faster."""
_HEARD_BYTES, _HEARD_TIMES = 16 * 1024, 4
_SPAN = re.compile(r"bytes (?:(\d{1,19})-(\d{1,19})|\*)/(\d{1,19}|\*)")
_LENGTH = re.compile(r"\d{1,19}")
_PLAIN_FRAMINGS = ("", "identity", "chunked")


def copy_body(
    body: Body,
    length: int,
    sink: Sink,
    stop: Stop,
    *,
    key: str,
    where: Where,
    translated: Callable[[], AbstractContextManager[None]],
    is_whole: bool = True,
    checksums: Sequence[Checksum] = (),
) -> None:
    """
    Give the next `length` bytes of a body to the sink, whose failures go through untranslated.

    With `is_whole` the body has to end there. A longer one is another one, and its last bytes are not given. A file is told what
    the answer says of the whole object.

    Raises:
        SourceUnavailable: the body ended early, or too late.
    """
    missing = length
    if checksums and isinstance(sink, FileSink):
        sink.expect(checksums)
    if isinstance(sink, FileSink) and isinstance(body, PlainBody) and body.is_plain(length):
        missing = move(body, length, sink, stop, translated=translated)
        if missing:
            raise where.ended_early(key, missing)
    while missing:
        with translated():
            chunk = read_some(body, min(CHUNK_BYTES, missing))
            missing -= len(chunk)
            is_longer = missing < 0 or bool(is_whole and not missing and read_some(body, 1))  # a chunk of a negative size gives more
        stop.check()
        if not chunk:
            raise where.ended_early(key, missing)
        if is_longer:
            raise where.went_on(key)
        sink(chunk)


def hear_out(body: Body) -> None:
    """
    Read what is left of an answer that nobody wants, so that its connection can be used again.

    Long or slow ones are left, in the middle: whoever has the answer closes it.
    """
    with suppress(HTTPError, OSError):
        for _ in range(_HEARD_TIMES):
            if not read_some(body, _HEARD_BYTES):
                return


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
    """What headers say, whose names are in lower case or have none."""
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


def check_told(told: Told, wanted: StoredObject, start: int, length: int, where: Where, *, is_part: bool) -> None:
    """
    Compare what the headers say with the part, or the whole, that was asked for.

    Raises:
        SourceUnavailable: the body is another part, or the headers contradict each other.
        SourceChanged: the body is (a part) of an object of another length.
    """
    if (told.framing or "").strip().lower() not in _PLAIN_FRAMINGS:
        raise where.other_range(wanted.key)
    if not is_part:
        check_size(told.size_bytes, wanted, where)
        if told.span is None:
            return
    span = span_of(told.span)
    check_size(span.total, wanted, where)
    is_plain = not (told.kind or "").strip().lower().startswith("multipart/byteranges")
    if not is_plain or (span.first, span.last) != (start, start + length - 1) or told.size_bytes not in (None, length):
        raise where.other_range(wanted.key)


def check_size(size_bytes: int | None, wanted: StoredObject, where: Where) -> None:
    """Raise SourceChanged when the whole object has another length than the listed one."""
    if size_bytes is not None and size_bytes != wanted.size_bytes:
        raise where.other_size(wanted, size_bytes)
