"""
Tar archives, read as a stream: USTAR, GNU, pax and V7, without sparse files.

Invariants: what is held of an entry is its headers, which are bounded, and a step of its content; the archive ends with its
end mark. `tarfile` reads single headers alone: it takes extensions of any length, and holds each several times.
Source: POSIX.1-2017, pax, "pax Extended Header"; GNU tar manual, "Tar Internals".
"""

from __future__ import annotations

import re
import tarfile
from collections.abc import Iterator
from typing import BinaryIO

from adapter.storage.pull.archive_tree import CHUNK_BYTES, Damaged, Entry, Kind
from adapter.workers import Stop

_MAX_EXTENSION_BYTES = 256 * 1024
"""Of one extended header, or one long name."""
_MOST_ENTRY_BYTES = 1024 * 1024
"""Headers of one entry, together."""
_AVERAGE_HEADER_BYTES = 4 * 1024
"""Headers of one entry, on average; long names and security labels have half of it."""
_FREE_BYTES = 8 * _MOST_ENTRY_BYTES
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(_BLOCK)
_LONG_NAMES = {tarfile.GNUTYPE_LONGNAME: b"path", tarfile.GNUTYPE_LONGLINK: b"linkpath"}
_RECORDS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE)
_RECORD = re.compile(rb"([1-9]\d{0,7}) ([^=\n]+)=")
_KINDS: dict[bytes, Kind] = {
    **dict.fromkeys(tarfile.REGULAR_TYPES, "file"), tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "hard link",
}  # fmt: skip
_SPARSE = b"GNU.sparse."


class Tar:
    """One archive that is read. Iterating raises Damaged, ValueError and TarError: it is no tar archive, or not all of it."""

    def __init__(self, stream: BinaryIO, stop: Stop) -> None:
        self._stream = stream
        self._stop = stop
        self._headers_left = _FREE_BYTES
        self._entry_left = 0
        self._of_all: dict[bytes, bytes] = {}

    def __iter__(self) -> Iterator[Entry]:
        """All entries. The content of each is read before the next one."""
        while True:
            self._entry_left = min(_MOST_ENTRY_BYTES, self._headers_left)
            self._headers_left += _AVERAGE_HEADER_BYTES
            said: dict[bytes, bytes] = {}
            while (block := self._header(_BLOCK)) != _END:
                header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
                if header.size < 0:
                    raise Damaged("a number in a header is none")
                if header.type in _LONG_NAMES:
                    said = {_LONG_NAMES[header.type]: self._header(header.size).partition(b"\0")[0]} | said
                elif header.type not in _RECORDS:
                    break
                elif header.type == tarfile.XGLTYPE:
                    found = _records(self._header(header.size))
                    self._of_all |= {keyword: found[keyword] for keyword in (b"path", b"linkpath", b"size") if keyword in found}
                else:
                    said = _records(self._header(header.size)) | said  # the first header of several holds
            else:
                if said:
                    raise Damaged("it ends behind an extended header")
                return
            yield self._entry(header, self._of_all | said)

    def _entry(self, header: tarfile.TarInfo, said: dict[bytes, bytes]) -> Entry:
        if header.type == tarfile.GNUTYPE_SPARSE or any(keyword.startswith(_SPARSE) for keyword in said):
            raise Damaged("it has a sparse file; pack it again without --sparse (bsdtar: with --no-read-sparse)")
        name = said[b"path"].rstrip(b"/") if b"path" in said else header.name.encode("utf-8", "surrogateescape")
        kind, path = _KINDS.get(header.type), name.decode()
        if kind == "file":
            size_bytes = _decimal(said[b"size"]) if b"size" in said else header.size
            return Entry(path, kind, size_bytes, self._pieces(size_bytes))
        target = said.get(b"linkpath", header.linkname.encode("utf-8", "surrogateescape"))
        return Entry(path, kind, len(target), [target]) if kind != "directory" else Entry(path, kind)

    def _pieces(self, size_bytes: int) -> Iterator[bytes]:
        for done in range(0, size_bytes, CHUNK_BYTES):
            yield self._read(min(CHUNK_BYTES, size_bytes - done))
        self._read(-size_bytes % _BLOCK)

    def _header(self, size_bytes: int) -> bytes:
        """The next header, or what extends one, with its padding."""
        padded_bytes = size_bytes + -size_bytes % _BLOCK
        if padded_bytes > _MAX_EXTENSION_BYTES:
            raise Damaged(f"a header has more than {_MAX_EXTENSION_BYTES} bytes")
        self._entry_left -= padded_bytes
        self._headers_left -= padded_bytes
        if self._entry_left < 0:
            raise Damaged("its entries have more headers than content")
        return self._read(padded_bytes)

    def _read(self, size_bytes: int) -> bytes:
        self._stop.check()
        data = self._stream.read(size_bytes)
        if len(data) < size_bytes:
            raise Damaged("it ends in the middle")
        return data


def _records(header: bytes) -> dict[bytes, bytes]:
    """Keywords and values: records follow each other, each of its own length, as `12 path=a/b` and a line feed. Raises Damaged."""
    found: dict[bytes, bytes] = {}
    header, start = header.rstrip(b"\0"), 0
    while start < len(header):
        record = _RECORD.match(header, start)
        end = start + int(record[1]) if record else 0
        if record is None or header[end - 1 : end] != b"\n":
            raise Damaged("an extended header is damaged")
        found[record[2]] = header[record.end() : end - 1]
        start = end
    return found


def _decimal(text: bytes) -> int:
    if not text.isdigit():
        raise Damaged("a number in an extended header is none")
    return int(text)
