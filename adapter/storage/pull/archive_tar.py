"""
Tar archives, read as a stream: USTAR, GNU, pax and V7, sparse files included.

Invariants: what is held of an entry is its headers, which are bounded, and a step of its content; the archive ends with its
end mark. `tarfile` reads single headers alone: it takes extensions of any length, and holds each several times.
Source: POSIX.1-2017, pax, "pax Extended Header"; GNU tar manual, "Tar Internals".
"""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass

from adapter.storage.pull.archive_tree import CHUNK_BYTES, Damaged, Entry, Kind
from adapter.workers import Stop

_MAX_EXTENSION_BYTES = 256 * 1024
"""Of one extended header, or one long name."""
_MOST_ENTRY_BYTES = 1024 * 1024
"""Headers of one entry, together; a map of 16,384 parts has half of it."""
_AVERAGE_HEADER_BYTES = 4 * 1024
"""Headers of one entry, on average; long names and security labels have half of it."""
_MAX_PARTS = 16 * 1024
"""Of one sparse file."""
_BLOCK = tarfile.BLOCKSIZE
_END = bytes(_BLOCK)
_LONG_NAMES = {tarfile.GNUTYPE_LONGNAME: b"path", tarfile.GNUTYPE_LONGLINK: b"linkpath"}
_RECORDS = (tarfile.XHDTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.XGLTYPE)
_OF_ONE = {b"path", b"linkpath", b"size"}
_RECORD = re.compile(rb"([1-9]\d{0,7}) ([^=\n]+)=")
_KINDS: dict[bytes, Kind] = {
    **dict.fromkeys(tarfile.REGULAR_TYPES, "file"), tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "hard link",
}  # fmt: skip
_MAP, _SIZE, _REAL_SIZE = b"GNU.sparse.map", b"GNU.sparse.size", b"GNU.sparse.realsize"
_ONE_PART = (b"GNU.sparse.offset", b"GNU.sparse.numbytes")
_FORMAT_1_0 = {b"GNU.sparse.major": b"1", b"GNU.sparse.minor": b"0"}.items()


@dataclass
class Tar:
    """One archive that is read. Iterating raises Damaged, ValueError and TarError: it is no tar archive, or not all of it."""

    stream: io.BufferedIOBase
    stop: Stop
    headers_left: int = 8 * _MOST_ENTRY_BYTES
    entry_left: int = 0

    def __iter__(self) -> Iterator[Entry]:
        """All entries. The content of each is read before the next one."""
        while True:
            self.entry_left = min(_MOST_ENTRY_BYTES, self.headers_left)
            self.headers_left += _AVERAGE_HEADER_BYTES
            said: dict[bytes, bytes] = {}
            while (block := self._header()) != _END:
                header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
                if header.size < 0:
                    raise Damaged("a number in a header is not a number")
                if header.type in _LONG_NAMES:
                    said = {_LONG_NAMES[header.type]: self._header(header.size).partition(b"\0")[0]} | said
                    continue
                if header.type not in _RECORDS:
                    break
                found = _records(self._header(header.size))
                if header.type != tarfile.XGLTYPE:
                    said = found | said  # the first header of several holds
                elif found.keys() & _OF_ONE:
                    raise Damaged("a header of all entries says what can be of one alone")
            else:
                if said:
                    raise Damaged("it ends after an extended header")
                return
            yield self._entry(header, block, said)

    def _entry(self, header: tarfile.TarInfo, block: bytes, said: dict[bytes, bytes]) -> Entry:
        name, link = (text.encode("utf-8", "surrogateescape") for text in (header.name, header.linkname))
        name = said.get(b"GNU.sparse.name", said[b"path"].rstrip(b"/") if b"path" in said else name)
        kind, path = _KINDS.get(header.type), name.decode()
        if kind == "file":
            size_bytes, parts = self._parts(header, block, said)
            return Entry(path, kind, size_bytes, self._pieces(parts))
        link = said.get(b"linkpath", link)
        return Entry(path, kind, len(link), [(0, link)]) if kind != "directory" else Entry(path, kind)

    def _parts(self, header: tarfile.TarInfo, block: bytes, said: dict[bytes, bytes]) -> tuple[int, list[tuple[int, int]]]:
        """Length of a file, and offset and length of what is stored of it; what lies between is zeros."""
        stored_bytes = _decimal(said[b"size"]) if b"size" in said else header.size
        if header.type == tarfile.GNUTYPE_SPARSE:
            size_bytes, fields, more = _number(block[483:495]), bytearray(block[386:482]), block[482]
            while more:
                block = self._header()
                fields += block[:504]
                more = block[504]
            numbers = [_number(fields[at : at + 12]) for at in range(0, len(fields), 12)]
        elif {_MAP, _SIZE} <= said.keys():
            size_bytes, numbers = _decimal(said[_SIZE]), [_decimal(number) for number in said[_MAP].split(b",")]
        elif said.items() >= _FORMAT_1_0 and _REAL_SIZE in said:
            text, lines, count = bytearray(), 0, 0
            while lines <= 2 * count:  # the first line counts the parts
                text += self._header()
                lines += text.count(b"\n", -_BLOCK)
                count = _decimal(text[: text.find(b"\n")])
            size_bytes, numbers = _decimal(said[_REAL_SIZE]), [_decimal(line) for line in text.split(b"\n")[1 : 2 * count + 1]]
            stored_bytes -= len(text)
        elif any(keyword.startswith(b"GNU.sparse.") for keyword in said):
            raise Damaged("it has a sparse file of an unknown format; pack it again without --sparse")
        else:
            return stored_bytes, [(0, stored_bytes)]
        if len(numbers) > 2 * _MAX_PARTS:
            raise Damaged(f"a sparse file has more than {_MAX_PARTS} parts; pack it again without --sparse")
        parts = [part for part in zip(numbers[::2], numbers[1::2], strict=True) if part[1]]
        end = 0
        for start, length in parts:
            if start < end or length < 0:
                raise Damaged("the parts of a sparse file overlap")
            end = start + length
        if end > size_bytes or sum(length for _, length in parts) != stored_bytes:
            raise Damaged("the parts of a sparse file contradict its length")
        return size_bytes, parts

    def _pieces(self, parts: list[tuple[int, int]]) -> Iterator[tuple[int, bytes]]:
        for start, length in parts:
            for done in range(0, length, CHUNK_BYTES):
                yield start + done, self._read(min(CHUNK_BYTES, length - done))
        self._read(-sum(length for _, length in parts) % _BLOCK)

    def _header(self, size_bytes: int = _BLOCK) -> bytes:
        """The next header, or what extends one, with its padding."""
        padded_bytes = size_bytes + -size_bytes % _BLOCK
        if padded_bytes > _MAX_EXTENSION_BYTES:
            raise Damaged(f"a header has more than {_MAX_EXTENSION_BYTES} bytes")
        self.entry_left -= padded_bytes
        self.headers_left -= padded_bytes
        if self.entry_left < 0:
            raise Damaged("its entries have more headers than content")
        return self._read(padded_bytes)

    def _read(self, size_bytes: int) -> bytes:
        self.stop.check()
        data = self.stream.read(size_bytes)
        if len(data) < size_bytes:
            raise Damaged("it ends in the middle")
        return data


def _records(header: bytes) -> dict[bytes, bytes]:
    """Keywords and values: records follow each other, each of its own length, as `12 path=a/b` and a line feed. Raises Damaged."""
    found: dict[bytes, bytes] = {}
    parts: list[bytes] = []
    header, start = header.rstrip(b"\0"), 0
    while start < len(header):
        record = _RECORD.match(header, start)
        end = start + int(record[1]) if record else 0
        if record is None or header[end - 1 : end] != b"\n":
            raise Damaged("an extended header is damaged")
        value = header[record.end() : end - 1]
        if record[2] in _ONE_PART:  # of the first sparse format: again and again
            parts.append(value)
        found[record[2]] = value
        start = end
    return found | {_MAP: b",".join(parts)} if parts else found


def _decimal(text: bytes | bytearray) -> int:
    if not text.isdigit():
        raise Damaged("a number in an extended header is not a number")
    return int(text)


def _number(field: bytes | bytearray) -> int:
    """In octal, or binary behind a byte that is 0x80, or 0xFF below zero."""
    if field[0] & 0x80:
        return int.from_bytes(field[1:], "big", signed=field[0] == 0xFF)
    return int(field.partition(b"\0")[0].strip() or b"0", 8)
