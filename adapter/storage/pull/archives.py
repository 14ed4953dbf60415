"""
Archives made into plain files: `.tar`, `.tar.gz`, `.tgz`, `.zip`.

What may come out, whatever the kind: `archive_tree`. How tar is read: `archive_tar`. What is wrong with an archive is a fact about
the model, in one line. Knows no store.

Zip archives have members that are stored or deflated, and are read by the standard library's `zipfile`. Invariants: the end mark is
the only one whose comment ends where the file ends, and the directory is measured before `zipfile` parses it; a step of unpacking
gives no more than 256 KiB; no two members share packed bytes, so that the archive's own length bounds what comes out. What stands in
front of the archive (a program that unpacks itself) is passed over. Source: PKWARE APPNOTE.TXT 6.3.10.
"""

from __future__ import annotations

import gzip
import io
import os
import re
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from adapter.errors import InvalidRequest
from adapter.storage.pull.archive_tar import Tar
from adapter.storage.pull.archive_tree import CHUNK_BYTES, FREE_BYTES, RATIO, ArchiveTree, Damaged, Entry, Kind
from adapter.storage.search import shown
from adapter.volume.space import Reservation
from adapter.volume.trees import opened
from adapter.workers import Stop

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
_OTHERS = (".gz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".rar")
_KINDS = {
    b"\x1f\x8b": "gzip", b"PK\3\4": "zip", b"PK\5\6": "zip", b"BZh": "bzip2", b"\xfd7zXZ": "xz", b"\x28\xb5\x2f\xfd": "zstd",
    b"7z\xbc\xaf": "7z", b"Rar!": "rar",
}  # fmt: skip
"""First bytes of what is taken for one another."""
_STEP_BYTES = 16 * 1024
_MAX_SINGLE_BYTES = 1024 * 1024
"""Of a name, or of padding, in a gzip file: `gzip` reads them one by one."""
MAX_DIRECTORY_BYTES = 16 * 1024 * 1024
"""`zipfile` holds it, and up to 1 KiB for each member; 100,000 members of names of 90 bytes take 16 MiB."""
_MAX_NAMES_BYTES = 8 * 1024 * 1024
"""One letter outside of the basic plane makes Python hold four bytes for each."""
_MEMBER_BYTES, _LENGTHS_AT, _LENGTHS = 46, 28, struct.Struct("<3H")
_END = struct.Struct("<4s4H2IH")
_LOCAL = struct.Struct("<4s5H3I2H")
_SHORT = 0xFFFF
"""A field of this value is said by Zip64."""
_UTF8 = 0x800
_METHODS = {9: "deflate64", 12: "bzip2", 14: "lzma", 93: "zstd", 95: "xz", 99: "AES"}
_ENCRYPTED = 0x1 | 0x40 | 0x2000
_BROKEN = (
    zipfile.BadZipFile, tarfile.TarError, gzip.BadGzipFile, zlib.error, struct.error, RuntimeError, EOFError, ValueError, OverflowError
)  # fmt: skip
"""What the libraries raise on bytes that are no archive."""
_ZIP_KINDS: dict[int, Kind] = {0: "file", stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}


def is_archive(name: str) -> bool:
    """
    Whether a file of this name is unpacked.

    Raises:
        InvalidRequest: a kind of archive that is not supported.
    """
    if name.lower().endswith(SUFFIXES):
        return True
    if name.lower().endswith(_OTHERS):
        raise InvalidRequest(f"unpack is set, but {name!r} cannot be unpacked; supported: {', '.join(SUFFIXES)}")
    return False


def unpack(archive: Path, *, name: str, target: Path, reserved: Reservation, max_bytes: int, stop: Stop) -> dict[str, int]:
    """
    Unpack one archive into an empty directory.

    Args:
        archive: the file.
        name: the archive's for people; it tells the kind.
        target: the directory.
        reserved: grows by what is unpacked.
        max_bytes: bounds all files together.
        stop: checked between steps.

    Returns:
        Every file's length in bytes by its path below the target.

    Raises:
        InvalidModel: damaged, or with content that is not unpacked.
        DiskFull: with both numbers.
        OSError: the volume cannot be written; see `Volume.writing`.
        Stopped: the work is no longer wanted.
    """
    kind = {".zip": "zip", ".tar": "tar"}.get(name.lower()[-4:], "gzip")
    with open(archive, "rb", opener=opened) as file:
        limit_bytes = min(max_bytes, FREE_BYTES + RATIO * os.fstat(file.fileno()).st_size)
        tree = ArchiveTree(name, limit_bytes, target, reserved, stop)
        content = gzip.GzipFile(fileobj=cast("Any", _Steps(file, stop)))
        try:
            for entry in _members(file.fileno(), tree, stop) if kind == "zip" else Tar(file if kind == "tar" else content, stop):
                tree.add(entry)
            if kind == "gzip" and all(content.read(CHUNK_BYTES) for _ in range(FREE_BYTES // CHUNK_BYTES)):  # to the checksum
                raise Damaged("it goes on without end")
        except _BROKEN as error:
            found = _begins_like(file) or kind
            hint = f"it begins like {found}"
            if found == kind:
                hint = str(error) if isinstance(error, Damaged) else shown(str(error))
            if isinstance(error, UnicodeDecodeError):
                hint = f"the name {error.object[:200]!r} is not UTF-8"
            raise tree.refusal(f"is damaged, or not what its name says: {hint}") from error
    return tree.finish()


def _begins_like(file: io.BufferedReader) -> str | None:
    """The kind that its first bytes tell."""
    file.seek(0)
    head = file.read(512)
    return "tar" if head[257:262] == b"ustar" else next((kind for start, kind in _KINDS.items() if head.startswith(start)), None)


@dataclass
class _Steps:
    """A file that is read until the work is no longer wanted. Reading raises Stopped, and Damaged: bytes one by one without end."""

    file: io.BufferedReader
    stop: Stop
    single_bytes: int = 0

    def read(self, size: int = -1, /) -> bytes:
        """The next bytes, at most a step: what follows a member of a gzip file is copied once for each."""
        self.stop.check()
        self.single_bytes = self.single_bytes + 1 if size == 1 else 0
        if self.single_bytes > _MAX_SINGLE_BYTES:
            raise Damaged("a name or the padding of gzip has no end")
        return self.file.read(min(size, _STEP_BYTES) if size >= 0 else _STEP_BYTES)


def _members(archive: int, tree: ArchiveTree, stop: Stop) -> Iterator[Entry]:
    """
    Every entry, after a look at all of them. The content of each is read before the next one.

    Raises:
        Damaged, one of `_BROKEN`: it is no zip archive, or not all of it.
        InvalidModel: it holds what is not unpacked.
        DiskFull, OSError: as `ArchiveTree.announce`.
    """
    with _Measured(io.FileIO(archive, closefd=False), tree) as file:
        entries = _entries(file)
        with zipfile.ZipFile(file) as directory:
            members = directory.infolist()
            if entries not in (_SHORT, len(members) & _SHORT):
                raise Damaged("its directory has more or fewer entries than its end says")
            tree.announce(_checked(directory, tree, stop), len(members))
            for member in members:
                yield _entry(directory, member, file)


class _Measured(io.BufferedReader):
    """A file that gives no more at once than a directory may have, whichever directory is asked for."""

    def __init__(self, file: io.FileIO, tree: ArchiveTree) -> None:
        super().__init__(file)
        self._tree = tree

    def read(self, size: int | None = -1, /) -> bytes:
        if size is not None and size > MAX_DIRECTORY_BYTES:
            raise Damaged(f"its directory has more than {MAX_DIRECTORY_BYTES} bytes")
        directory = super().read(size)
        entries = names_bytes = at = 0
        while len(directory) > CHUNK_BYTES and at + _MEMBER_BYTES <= len(directory):  # what is damaged, `zipfile` refuses
            name_bytes, extra_bytes, comment_bytes = _LENGTHS.unpack_from(directory, at + _LENGTHS_AT)
            if directory.find(b"\0", at + _MEMBER_BYTES, at + _MEMBER_BYTES + name_bytes) >= 0:
                raise Damaged("a name has a NUL byte in it")
            entries += 1
            names_bytes += name_bytes
            at += _MEMBER_BYTES + name_bytes + extra_bytes + comment_bytes
        if names_bytes > _MAX_NAMES_BYTES:
            raise Damaged(f"its directory has more than {_MAX_NAMES_BYTES} bytes of names")
        self._tree.announce(0, entries)
        return directory


def _entries(file: io.BufferedReader) -> int:
    """How many members the end mark says. Raises Damaged: there is none, or more than one could be meant."""
    start = max(0, file.seek(0, os.SEEK_END) - _END.size - _SHORT)
    file.seek(start)
    tail = file.read()
    marks = [mark.start() for mark in re.finditer(b"PK\5\6", tail)]
    ends = [at for at in marks if at + _END.size + int.from_bytes(tail[at + 20 : at + 22], "little") == len(tail)]
    if len(ends) != 1 or ends != marks[-1:]:
        raise Damaged("it has no end mark, or more than one, or something follows it")
    _, disk, first_disk, here, entries, *_ = _END.unpack_from(tail, ends[0])
    if here != entries or (disk, first_disk) not in ((0, 0), (_SHORT, _SHORT)):
        raise Damaged("it is a part of an archive")
    return int(entries)


def _checked(opened: zipfile.ZipFile, tree: ArchiveTree, stop: Stop) -> int:
    """Look at every member before one is unpacked. Returns what they have together, in bytes."""
    for member in opened.infolist():
        stop.check()
        if member.flag_bits & _ENCRYPTED:
            raise tree.refusal("is encrypted")
        if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            method = _METHODS.get(member.compress_type, f"method {member.compress_type}")
            raise tree.refusal(
                f"holds {shown(member.orig_filename)}, which is packed with {method}; stored and deflate can be unpacked: pack it again, "
                "for instance with `zip -r`"
            )
        if member.volume not in (0, _SHORT):
            raise Damaged("it is a part of an archive")
    ordered = sorted(opened.infolist(), key=lambda member: member.header_offset)
    starts = [*(member.header_offset for member in ordered), opened.start_dir]
    if starts[0] < 0 or any(_end_of(member) > after for member, after in zip(ordered, starts[1:], strict=True)):
        raise Damaged("members overlap, or lie outside of the files")
    return sum(member.file_size for member in ordered)


def _end_of(member: zipfile.ZipInfo) -> int:
    return member.header_offset + _LOCAL.size + member.compress_size


def _entry(opened: zipfile.ZipFile, member: zipfile.ZipInfo, file: io.BufferedReader) -> Entry:
    name, kind = _name(member), stat.S_IFMT(member.external_attr >> 16)
    file.seek(member.header_offset)
    method, *_, name_bytes, extra_bytes = _LOCAL.unpack(file.read(_LOCAL.size))[3:]
    if method != member.compress_type or _end_of(member) + name_bytes + extra_bytes > opened.start_dir:
        raise Damaged(f"the header of {shown(name)} contradicts the directory")
    is_directory = not kind and name.endswith("/")
    return Entry(name, "directory" if is_directory else _ZIP_KINDS.get(kind), member.file_size, _pieces(opened, member))


def _pieces(opened: zipfile.ZipFile, member: zipfile.ZipInfo) -> Iterator[tuple[int, bytes]]:
    """A member's content with its offsets. `zipfile` looks at its name and checksum. Raises Damaged."""
    done = 0
    with opened.open(member) as content:
        while data := content.read(CHUNK_BYTES):
            yield done, data
            done += len(data)
    if done != member.file_size:
        raise Damaged(f"{shown(member.orig_filename)} is shorter than the archive says")


def _name(member: zipfile.ZipInfo) -> str:
    """
    A member's name, with the letters that its packer meant.

    `zipfile` reads names without the flag of UTF-8 in the alphabet of the first PCs; Info-ZIP and macOS write UTF-8 there all the same.
    """
    raw = member.orig_filename.encode("utf-8" if member.flag_bits & _UTF8 else "cp437")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return member.orig_filename
