"""
Both ends of a pulled file: bounded memory, whatever the size.

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


@dataclass(frozen=True)
class Ends:
    """What was read of one file. A short file is whole in its tail."""

    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)
    size_bytes: int


def read_ends(path: Path, check: Callable[[], None]) -> Ends:
    """
    Read the ends of a file.

    Args:
        path: a regular file, links followed.
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
        finally:
            os.close(descriptor)
    except OSError as error:
        raise VolumeFailed(f"the model's file {path.name} cannot be read on the volume: {error.strerror}") from error
    return Ends(head, tail, state.st_size)


def _at(descriptor: int, offset: int, most: int) -> bytes:
    """So many bytes from there, or as many as the file has."""
    parts: list[bytes] = []
    while most > 0 and (part := os.pread(descriptor, most, offset)):
        parts.append(part)
        offset += len(part)
        most -= len(part)
    return b"".join(parts)
