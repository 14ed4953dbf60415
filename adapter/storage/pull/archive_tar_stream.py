"""
What `tarfile` reads from: forward only, with bounds for headers.

`tarfile` reads each header and extension whole, whatever its length says. Its releases before 3.11.10 and
3.12.6 also look for numbers in extended headers in quadratic time (CVE-2024-6232), and make a header of
64 KiB, whose records overlap, hundreds of MiB: so records are looked at before `tarfile` has them.
Source of the format: POSIX.1-2017, pax, "pax Extended Header".
"""

from __future__ import annotations

import os
import re
import tarfile
from typing import BinaryIO

from adapter.storage.pull.archive_tree import CHUNK_BYTES, Damaged
from adapter.workers import Stop

MAX_EXTENSION_BYTES = 256 * 1024
"""Of one extended header, or one long name: it is held as a whole, several times."""
_ENTRY_BYTES = 1024 * 1024
"""Headers of one entry, together; a map of 16,384 parts has half of it."""
_AVERAGE_BYTES = 4 * 1024
"""Headers of one entry, on average; long names and security labels have half of it."""
_FREE_BYTES = 8 * _ENTRY_BYTES
_KIND = slice(156, 157)
_RECORDS, _NAMES = (b"x", b"X", b"g"), (b"L", b"K")
_MAX_DIGITS = 256
_DIGITS = re.compile(rb"\d+")


class TarStream:
    """A stream of one tar archive. Reading raises Damaged, and Stopped when the work is no longer wanted."""

    def __init__(self, stream: BinaryIO, stop: Stop, most_bytes: int) -> None:
        """`most_bytes` bounds all that is read."""
        self._stream = stream
        self._stop = stop
        self._left = most_bytes
        self._headers_left = _FREE_BYTES
        self._at = 0
        self._last = b""
        self.header = b""
        """Of the entry itself, behind those that say more of it."""
        self.is_content = False
        """Whether content of a file is read, and not a header."""
        self.begin()

    def begin(self) -> None:
        """The next entry begins."""
        self.is_content = False
        self._announced = self.header = b""
        self._entry_left = min(_ENTRY_BYTES, self._headers_left)
        self._headers_left += _AVERAGE_BYTES

    @property
    def is_at_end_mark(self) -> bool:
        """Whether the last header was a block of zeros."""
        return self._last == bytes(tarfile.BLOCKSIZE)

    def tell(self) -> int:
        """Bytes that were read."""
        return self._at

    def seek(self, position: int, whence: int = os.SEEK_SET, /) -> int:
        """Go on to a later position."""
        if whence != os.SEEK_SET or position < self._at:
            raise Damaged("its entries overlap")
        while self._at < position and self._take(min(CHUNK_BYTES, position - self._at)):
            continue
        return self._at

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, fewer at the end."""
        if self.is_content:
            return self._take(size)
        if size < 0 or size > MAX_EXTENSION_BYTES:
            raise Damaged(f"a header has more than {MAX_EXTENSION_BYTES} bytes")
        self._entry_left -= size
        self._headers_left -= size
        if self._entry_left < 0:
            raise Damaged("its entries have more headers than content")
        self._last = self._take(size)
        announced, self._announced = self._announced, b""
        if announced in _RECORDS:
            _check_records(self._last)
        elif not announced and self._last[_KIND] in _RECORDS + _NAMES:
            self._announced = self._last[_KIND]
        elif not announced and size == tarfile.BLOCKSIZE:
            self.header = self.header or self._last
        return self._last

    def drain(self, most_bytes: int) -> None:
        """Read what follows the end, without a use for it."""
        self._left = most_bytes
        while self._take(CHUNK_BYTES):
            continue

    def close(self) -> None:
        """The stream is the caller's."""

    def _take(self, size: int) -> bytes:
        self._stop.check()
        data = self._stream.read(size)
        self._at += len(data)
        self._left -= len(data)
        if self._left < 0:
            raise Damaged("it goes on without end")
        return data


def _check_records(header: bytes) -> None:
    """Records follow each other, each of its own length: `12 path=a/b` and a line feed."""
    start = 0
    while header[start : start + 1] not in (b"", b"\0"):
        space = header.find(b" ", start, start + 9)
        digits = header[start : max(space, start)]
        end = start + int(digits if digits.isdigit() else b"0")
        equals = header.find(b"=", space, end)
        if equals < 0 or end > len(header) or header[end - 1 : end] != b"\n":
            raise Damaged("an extended header is damaged")
        if header[space + 1 : equals] == b"size" and not header[equals + 1 : end - 1].isdigit():
            raise Damaged("a number in an extended header is none")
        start = end
    if header.count(0, start) != len(header) - start:
        raise Damaged("an extended header is damaged")
    if any(run.end() - run.start() > _MAX_DIGITS for run in _DIGITS.finditer(header)):
        raise Damaged("a number in an extended header has no end")
