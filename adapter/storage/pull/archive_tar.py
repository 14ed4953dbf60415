"""
Tar archives, read as a stream by the standard library's `tarfile`: USTAR, GNU, pax and V7, sparse files included.

Invariants: `tarfile` reads from `_TarStream`, which bounds headers; what is held of an entry is its headers and
a step of its content; the archive ends with its end mark. Anything that is neither file, directory nor
link refuses the archive.

Why a stream of our own: `tarfile` reads each header and extension whole, whatever its length says. Its releases
before 3.11.10 and 3.12.6 also look for numbers in extended headers in quadratic time (CVE-2024-6232), and make a
header of 64 KiB, whose records overlap, hundreds of MiB: so records are looked at before `tarfile` has them.
Source: POSIX.1-2017, pax, "pax Extended Header"; GNU tar manual, "Tar Internals".
"""

from __future__ import annotations

import os
import posixpath
import re
import struct
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO, cast

from adapter.model import is_utf8
from adapter.storage.pull.archive_tree import CHUNK_BYTES, FREE_BYTES, MAX_LINK_BYTES, ArchiveTree, Damaged
from adapter.storage.search import MAX_OBJECTS, shown
from adapter.workers import Stop

_ENTRY_BYTES = 8 * 1024
"""Headers of one entry, on average; archives of many long names have a quarter of it."""
_MAX_SPANS = 16 * 1024
"""Stored parts of one sparse file."""
_MAX_OF_ALL = 32
"""Keywords that stand for all entries."""
_MAX_OF_ALL_CHARACTERS = 64 * 1024
_SPARSE, _MAP = "GNU.sparse.", "GNU.sparse.map"
_REAL_SIZES = {"GNU.sparse.size", "GNU.sparse.realsize"}
BROKEN = (tarfile.TarError, ValueError, AttributeError, IndexError, TypeError, OverflowError, struct.error)
"""What `tarfile` raises on bytes that are no archive; and RecursionError: it reads each header inside of the one before."""
_MAX_EXTENSION_BYTES = 256 * 1024
"""Of one extended header, or one long name: it is held as a whole, several times."""
_MOST_ENTRY_BYTES = 1024 * 1024
"""Headers of one entry, together; a map of 16,384 parts has half of it."""
_AVERAGE_HEADER_BYTES = 4 * 1024
"""Headers of one entry, on average; long names and security labels have half of it."""
_FREE_BYTES = 8 * _MOST_ENTRY_BYTES
_KIND = slice(156, 157)
_RECORDS, _NAMES = (b"x", b"X", b"g"), (b"L", b"K")
_MAX_DIGITS = 256
_DIGITS = re.compile(rb"\d+")


def untar(stream: BinaryIO, tree: ArchiveTree, stop: Stop, *, is_packed: bool) -> None:
    """
    Unpack a tar archive; `is_packed` has the stream read to its end, where the checksum stands.

    Raises:
        Damaged, one of `BROKEN`, RecursionError: it is no tar archive, or not all of it.
        InvalidModel: it holds what is not unpacked.
        DiskFull, OSError: as `ArchiveTree`.
    """
    blocks = _TarStream(stream, stop, tree.limit_bytes + MAX_OBJECTS * _ENTRY_BYTES)
    archive = tarfile.TarFile(fileobj=cast("Any", blocks), mode="r", encoding="utf-8", errors="surrogateescape")
    while (member := _next(archive, blocks)) is not None:
        _unpack(archive, member, blocks, tree)
        blocks.begin()
    if is_packed:
        blocks.drain(FREE_BYTES)


def _next(archive: tarfile.TarFile, blocks: _TarStream) -> tarfile.TarInfo | None:
    member = archive.next()
    cast("Any", archive).members.clear()  # it would remember every entry
    if member is None and blocks.last != bytes(tarfile.BLOCKSIZE):  # a mark of the end
        raise Damaged("it ends in the middle, or a header is damaged")
    of_all = archive.pax_headers
    if len(of_all) > _MAX_OF_ALL or sum(map(len, (*of_all, *of_all.values()))) > _MAX_OF_ALL_CHARACTERS:
        raise Damaged("an extended header has keywords without end")
    return member


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, blocks: _TarStream, tree: ArchiveTree) -> None:
    for name in (member.name, member.linkname):
        if not is_utf8(name):
            raise Damaged(f"the name {name[:200]!r} is not UTF-8")
    path = tree.path_of(member.name)
    if member.size < 0:
        raise Damaged("a number in a header is none")
    if member.isdir():
        tree.directory(path)
    elif path is None:
        raise tree.refusal("holds a file without a name, or with the name of its top")
    elif member.isreg() and member.name.endswith("/"):
        raise tree.refusal(f"holds {shown(member.name)} both as a file and as a directory")
    elif member.isreg():
        _check_parts(member, blocks.header, archive.offset)
        tree.file(path, member.size, _pieces(archive, member, blocks))
    elif member.issym() or member.islnk():
        target = member.linkname
        if len(target.encode()) > MAX_LINK_BYTES:
            raise tree.refusal(f"holds the link {shown(path)}, which names a path of more than {MAX_LINK_BYTES} bytes")
        tree.link(path, posixpath.join(posixpath.dirname(path), target) if member.issym() else target)
    else:
        raise tree.refusal(f"holds {shown(path)}, which is neither a file nor a directory")


def _check_parts(member: tarfile.TarInfo, header: bytes, end: int) -> None:
    """`tarfile` takes over a sparse file's map and lengths as they stand there. Raises Damaged."""
    spans: list[tuple[int, int]] | None = getattr(member, "sparse", None)
    said = member.pax_headers
    if any(keyword.startswith(_SPARSE) for keyword in said) and (spans is None or not said.keys() & _REAL_SIZES):
        raise Damaged("it has a sparse file of an unknown format; pack it again without --sparse")
    if spans is None:
        return
    if len(spans) > _MAX_SPANS:
        raise Damaged(f"a sparse file has more than {_MAX_SPANS} parts; pack it again without --sparse")
    done = stored = 0
    for start, length in spans:
        if start < done or length < 0:
            raise Damaged("the parts of a sparse file overlap")
        done, stored = start + length, stored + length
    size_bytes = int(said.get("size", tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").size))
    padding = -size_bytes % tarfile.BLOCKSIZE
    if done > member.size or member.offset_data + stored + padding != end or said.get(_MAP, ",").count(",") % 2 == 0:
        raise Damaged("the parts of a sparse file contradict its length")


def _pieces(archive: tarfile.TarFile, member: tarfile.TarInfo, blocks: _TarStream) -> Iterator[tuple[int, bytes]]:
    """The content of a file, with its offsets. Of a sparse one, without what is zeros."""
    blocks.is_content = True
    content = archive.extractfile(member)
    assert content is not None  # noqa: S101 - it is a regular file
    for offset in range(0, member.size, CHUNK_BYTES):
        data = content.read(CHUNK_BYTES)
        if len(data) < min(CHUNK_BYTES, member.size - offset):
            raise Damaged("it ends in the middle")
        if not member.issparse() or data.strip(b"\0"):
            yield offset, data


class _TarStream:
    """A stream of one tar archive. Reading raises Damaged, and Stopped when the work is no longer wanted."""

    def __init__(self, stream: BinaryIO, stop: Stop, most_bytes: int) -> None:
        """`most_bytes` bounds all that is read."""
        self._stream = stream
        self._stop = stop
        self._left = most_bytes
        self._headers_left = _FREE_BYTES
        self._at = 0
        self.last = b""
        """The header that was read last."""
        self.header = b""
        """Of the entry itself, behind those that say more of it."""
        self.is_content = False
        """Whether content of a file is read, and not a header."""
        self.begin()

    def begin(self) -> None:
        """The next entry begins."""
        self.is_content = False
        self._announced = self.header = b""
        self._entry_left = min(_MOST_ENTRY_BYTES, self._headers_left)
        self._headers_left += _AVERAGE_HEADER_BYTES

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
        if size < 0 or size > _MAX_EXTENSION_BYTES:
            raise Damaged(f"a header has more than {_MAX_EXTENSION_BYTES} bytes")
        self._entry_left -= size
        self._headers_left -= size
        if self._entry_left < 0:
            raise Damaged("its entries have more headers than content")
        self.last = self._take(size)
        announced, self._announced = self._announced, b""
        if announced in _RECORDS:
            _check_records(self.last)
        elif not announced and self.last[_KIND] in _RECORDS + _NAMES:
            self._announced = self.last[_KIND]
        elif not announced and size == tarfile.BLOCKSIZE:
            self.header = self.header or self.last
        return self.last

    def drain(self, most_bytes: int) -> None:
        """Read what follows the end, without a use for it."""
        self._left = most_bytes
        while self._take(CHUNK_BYTES):
            continue

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
