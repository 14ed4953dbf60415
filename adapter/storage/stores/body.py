"""A body on its way to the sink, and whether the body is the one that was asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from adapter.storage.bucket import Sink, StoredObject
from adapter.storage.stores.answers import Where
from adapter.workers import Stop

CHUNK_BYTES = 256 * 1024
"""Most bytes in memory per read. Larger ones were measured to be no faster."""
_SPAN = re.compile(r"bytes (?:(\d+)-(\d+)|\*)/(\d+|\*)")


class Body(Protocol):
    """What urllib3 gives, and botocore."""

    def read1(self, amt: int) -> bytes:
        """At most so many bytes, as soon as there are any; nothing at the end."""
        ...


def copy_body(
    body: Body, length: int, sink: Sink, stop: Stop, *, key: str, where: Where, translated: Callable[[], AbstractContextManager[None]]
) -> None:
    """
    Give the next `length` bytes of a body to the sink, whose failures go through untranslated.

    Raises:
        SourceUnavailable: the body ended early.
    """
    missing = length
    while missing:
        with translated():
            chunk = body.read1(min(CHUNK_BYTES, missing))
        stop.check()
        if not chunk:
            raise where.ended_early(key, missing)
        sink(chunk)
        missing -= len(chunk)


def span_of(content_range: str | None) -> tuple[int | None, int | None]:
    """First byte and total length of a part, from its `Content-Range`; each None when the server does not say."""
    match = _SPAN.fullmatch((content_range or "").strip())
    if match is None:
        return None, None
    start, _, total = match.groups()
    return (None if start is None else int(start)), (None if total == "*" else int(total))


def check_part(content_range: str | None, wanted: StoredObject, start: int, where: Where) -> None:
    """Raise SourceUnavailable for another part than was asked for, SourceChanged for a part of an object of another length."""
    first, total = span_of(content_range)
    if first != start:
        raise where.other_range(wanted.key)
    check_size(total, wanted, where)


def check_size(size_bytes: int | None, wanted: StoredObject, where: Where) -> None:
    """Raise SourceChanged when the whole object has another length than the listed one."""
    if size_bytes is not None and size_bytes != wanted.size_bytes:
        raise where.other_size(wanted, size_bytes)
