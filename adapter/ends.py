"""
Both ends of a pulled file, and how often a word occurs in the file: bounded memory, whatever the size.

Owns the reading only; who asks decides what the bytes mean. Blocks, so it runs in a thread.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from adapter.errors import InvalidModel, VolumeFailed

HEAD_BYTES = 64 * 1024
TAIL_BYTES = 256 * 1024
_CHUNK_BYTES = 256 * 1024
"""Counting in it holds Python's lock for well below a millisecond."""


@dataclass(frozen=True)
class Count:
    """What is to be counted in a file."""

    word: bytes
    """Cannot overlap with itself."""
    others: tuple[bytes, ...] = ()
    """Counted all together; what they begin with, all but the last byte, is rare."""
    until: bytes = b""
    """Where the counting ends; empty: with the file."""


@dataclass(frozen=True)
class Ends:
    """What was read of one file. A short file is whole in its tail."""

    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)
    size_bytes: int
    mentions: int = 0
    """How often the word that was asked for occurs, before what ends the counting. A word that begins with a newline may begin the file."""
    others: int = 0
    """How often the other words that were asked for occur, all together."""


def read_ends(path: Path, count: Count | None, check: Callable[[], None]) -> Ends:
    """
    Read the ends of a file, and go through it once where something is to be counted.

    Args:
        path: a regular file, links followed.
        count: takes one or two seconds for each GiB that is gone through.
        check: called before each read; may raise to end the work.

    Raises:
        InvalidModel: it is not a regular file.
        VolumeFailed: it cannot be read.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would block
        try:
            state = os.fstat(descriptor)
            if not stat.S_ISREG(state.st_mode):
                raise InvalidModel(f"the model's file {path.name} is not a regular file")
            check()
            head = _at(descriptor, 0, HEAD_BYTES)
            check()
            tail = _at(descriptor, max(0, state.st_size - TAIL_BYTES), TAIL_BYTES)
            mentions, counted = _counted(descriptor, count, check) if count else (0, 0)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise VolumeFailed(f"the model's file {path.name} cannot be read on the volume: {error.strerror}") from error
    return Ends(head, tail, state.st_size, mentions, counted)


def _at(descriptor: int, offset: int, most: int) -> bytes:
    """So many bytes from there, or as many as the file has."""
    parts: list[bytes] = []
    while most > 0 and (part := os.pread(descriptor, most, offset)):
        parts.append(part)
        offset += len(part)
        most -= len(part)
    return b"".join(parts)


def _counted(descriptor: int, count: Count, check: Callable[[], None]) -> tuple[int, int]:
    """Occurrences of the word, and of the others, those across the edge of two reads too."""
    offset = 0
    mentions = counted = 0
    kept = max(map(len, (count.word, count.until, *count.others))) - 1
    beginnings = {other[:-1] for other in count.others}
    before = b"\n"
    while True:
        check()
        part = os.pread(descriptor, _CHUNK_BYTES, offset)
        if not part:
            return mentions, counted
        offset += len(part)
        window = before + part
        end = window.find(count.until) if count.until else -1
        if end >= 0:
            window = window[:end]
        mentions += window.count(count.word) - before.count(count.word, 0, len(window))
        if any(beginning in window for beginning in beginnings):
            counted += sum(window.count(other) - before.count(other, 0, len(window)) for other in count.others)
        if end >= 0:
            return mentions, counted
        before = window[-kept:]
