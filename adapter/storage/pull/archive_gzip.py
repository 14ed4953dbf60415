"""
What gzip holds, as a stream: the standard library's `gzip` with bounds around it.

Invariant: one step reads 16 KiB and gives no more than was asked for, whatever the data says, and
headers are never held. `gzip` reads names in headers, and zeros behind a member, byte by byte: their length is bounded.
"""

from __future__ import annotations

import gzip
import zlib
from typing import Any, BinaryIO, cast

from adapter.storage.pull.archive_tree import Damaged
from adapter.workers import Stop

_STEP_BYTES = 16 * 1024
"""What follows a member is copied once for each, so steps are small."""
_MAX_SINGLE_BYTES = 1024 * 1024
"""That are read one by one, after each other: of a name, or of padding."""


class Gunzip(gzip.GzipFile):
    """The content of a gzip file: any number of members, each verified by its checksum. Reading raises Damaged and Stopped."""

    def __init__(self, file: BinaryIO, stop: Stop) -> None:
        super().__init__(fileobj=cast("Any", _Steps(file, stop)), mode="rb")

    def read(self, size: int | None = -1) -> bytes:
        """As of any file."""
        try:
            return super().read(size)
        except EOFError as error:
            raise Damaged("it ends in the middle") from error
        except (gzip.BadGzipFile, zlib.error) as error:
            raise Damaged("what gzip has packed is damaged") from error


class _Steps:
    """A file that is read in small steps, until the work is no longer wanted."""

    def __init__(self, file: BinaryIO, stop: Stop) -> None:
        self._file = file
        self._stop = stop
        self._single_bytes = 0

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, at most a step."""
        self._stop.check()
        self._single_bytes = self._single_bytes + 1 if size == 1 else 0
        if self._single_bytes > _MAX_SINGLE_BYTES:
            raise Damaged("a name or the padding of gzip has no end")
        return self._file.read(min(size, _STEP_BYTES) if size >= 0 else _STEP_BYTES)
