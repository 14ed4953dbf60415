"""
Tar archives, read as a stream by the standard library's `tarfile`: USTAR, GNU, pax and V7, sparse files included.

Invariants: `tarfile` reads from `TarStream`, which bounds headers; what is held of an entry is its headers and
a step of its content; the archive ends with its end mark. Anything that is neither file, directory nor
link refuses the archive. Source: POSIX.1-2017, pax; GNU tar manual, "Tar Internals".
"""

from __future__ import annotations

import posixpath
import struct
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, cast

from adapter.model import is_utf8
from adapter.storage.pull.archive_tar_stream import TarStream
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
_BROKEN = (tarfile.TarError, ValueError, AttributeError, IndexError, TypeError, OverflowError, struct.error)
"""What `tarfile` raises on bytes that are no archive."""


def untar(stream: BinaryIO, tree: ArchiveTree, stop: Stop, *, is_packed: bool) -> None:
    """
    Unpack a tar archive; `is_packed` has the stream read to its end, where the checksum stands.

    Raises:
        Damaged: it is no tar archive, or not all of it.
        InvalidModel: it holds what is not unpacked.
        DiskFull, OSError: as `ArchiveTree`.
    """
    blocks = TarStream(stream, stop, tree.limit_bytes + MAX_OBJECTS * _ENTRY_BYTES)
    with _told():
        archive = tarfile.TarFile(fileobj=cast("Any", blocks), mode="r", encoding="utf-8", errors="surrogateescape")
    while (member := _next(archive, blocks)) is not None:
        _unpack(archive, member, blocks, tree)
        blocks.begin()
    if is_packed:
        blocks.drain(FREE_BYTES)


def _next(archive: tarfile.TarFile, blocks: TarStream) -> tarfile.TarInfo | None:
    with _told():
        member = archive.next()
    cast("Any", archive).members.clear()  # it would remember every entry
    if member is None and not blocks.is_at_end_mark:
        raise Damaged("it ends in the middle, or a header is damaged")
    of_all = archive.pax_headers
    if len(of_all) > _MAX_OF_ALL or sum(map(len, (*of_all, *of_all.values()))) > _MAX_OF_ALL_CHARACTERS:
        raise Damaged("an extended header has keywords without end")
    return member


def _unpack(archive: tarfile.TarFile, member: tarfile.TarInfo, blocks: TarStream, tree: ArchiveTree) -> None:
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
    with _told():
        size_bytes = int(said.get("size", tarfile.TarInfo.frombuf(header, "utf-8", "surrogateescape").size))
    padding = -size_bytes % tarfile.BLOCKSIZE
    if done > member.size or member.offset_data + stored + padding != end or said.get(_MAP, ",").count(",") % 2 == 0:
        raise Damaged("the parts of a sparse file contradict its length")


def _pieces(archive: tarfile.TarFile, member: tarfile.TarInfo, blocks: TarStream) -> Iterator[tuple[int, bytes]]:
    """The content of a file, with its offsets. Of a sparse one, without what is zeros."""
    blocks.is_content = True
    with _told():
        content = archive.extractfile(member)
    assert content is not None  # noqa: S101 - it is a regular file
    for offset in range(0, member.size, CHUNK_BYTES):
        with _told():
            data = content.read(CHUNK_BYTES)
        if len(data) < min(CHUNK_BYTES, member.size - offset):
            raise Damaged("it ends in the middle")
        if not member.issparse() or data.strip(b"\0"):
            yield offset, data


@contextmanager
def _told() -> Iterator[None]:
    """What `tarfile` says of an archive is the reason why it is refused."""
    try:
        yield
    except Damaged:
        raise
    except RecursionError as error:
        raise Damaged("an extended header follows another without end") from error
    except _BROKEN as error:
        raise Damaged(shown(str(error))) from error
