"""
What gzip holds, as a stream: any number of members, each verified by its checksum.

Invariant: one step reads 16 KiB and gives no more than was asked for, whatever the data says, and
headers of any length are never held.
"""

from __future__ import annotations

import io
import zlib
from typing import Any, BinaryIO

from adapter.storage.pull.archive_tree import CHUNK_BYTES, Damaged
from adapter.workers import Stop

_STEP_BYTES = 16 * 1024
"""What follows a member is copied once for each, so steps are small."""
_WITH_GZIP_HEADER = 31
"""zlib's `wbits`: the largest window, header and checksum of gzip."""


def gunzipped(file: BinaryIO, stop: Stop) -> io.BufferedReader:
    """The content of a gzip file. Reading it raises Damaged, and Stopped when the work is no longer wanted."""
    return io.BufferedReader(_Gunzip(file, stop), CHUNK_BYTES)


class _Gunzip(io.RawIOBase):
    def __init__(self, file: BinaryIO, stop: Stop) -> None:
        super().__init__()
        self._file = file
        self._stop = stop
        self._member: zlib._Decompress | None = None
        self._waiting = b""
        self._is_first = True

    def readable(self) -> bool:
        return True

    def readinto(self, into: Any, /) -> int:
        while True:
            self._stop.check()
            if self._member is None and not self._begin():
                return 0
            if content := self._step(len(into)):
                into[: len(content)] = content
                return len(content)

    def _begin(self) -> bool:
        """Whether another member follows. Zeros behind the last one are padding."""
        while True:
            data = self._waiting or self._file.read(_STEP_BYTES)
            if not data and self._is_first:
                raise Damaged("it is empty")
            self._waiting = data if self._is_first else data.lstrip(b"\0")
            if self._waiting:
                break
            if not data:
                return False
            self._stop.check()
        self._is_first = False
        self._member = zlib.decompressobj(_WITH_GZIP_HEADER)
        return True

    def _step(self, most: int) -> bytes:
        assert self._member is not None  # noqa: S101 - readinto has begun it
        data = self._waiting or self._file.read(_STEP_BYTES)
        try:
            content = self._member.decompress(data, most)
        except zlib.error as error:
            raise Damaged("what gzip has packed is damaged") from error
        if self._member.eof:
            self._waiting = self._member.unused_data
            self._member = None
            return content
        self._waiting = self._member.unconsumed_tail
        if not data and not content:
            raise Damaged("it ends in the middle")
        return content
