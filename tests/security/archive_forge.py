"""Archives byte by byte: any field of them may lie. What the standard library would never write."""

from __future__ import annotations

import gzip
import stat
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass, replace

BLOCK = 512
END_OF_TAR = bytes(2 * BLOCK)
ZERO_MEMBER = gzip.compress(bytes(16 * 1024 * 1024))
"""A member of gzip that is 16 MiB of zeros: gzip files may have any number."""


@dataclass(frozen=True)
class Zipped:
    """One member of a zip archive. What is None is what is true."""

    name: bytes
    content: bytes = b""
    method: int = 8
    flags: int = 0
    mode: int = 0
    extra: bytes = b""
    packed: bytes | None = None
    packed_bytes: int | None = None
    size_bytes: int | None = None
    checksum: int | None = None
    start: int | None = None
    disk: int = 0
    local_name: bytes | None = None
    local_extra: bytes = b""
    local_method: int | None = None
    local_mark: bytes = b"PK\3\4"

    @property
    def data(self) -> bytes:
        """Its packed content."""
        if self.packed is not None:
            return self.packed
        if self.method != 8:
            return self.content
        engine = zlib.compressobj(wbits=-15)
        return engine.compress(self.content) + engine.flush()

    def fields(self) -> tuple[int, int, int]:
        """Checksum, packed and unpacked length."""
        return (
            zlib.crc32(self.content) if self.checksum is None else self.checksum,
            len(self.data) if self.packed_bytes is None else self.packed_bytes,
            len(self.content) if self.size_bytes is None else self.size_bytes,
        )

    def local(self) -> bytes:
        """What stands before its content, and the content."""
        name = self.name if self.local_name is None else self.local_name
        method = self.method if self.local_method is None else self.local_method
        numbers = (20, self.flags, method, 0, 0, *self.fields(), len(name), len(self.local_extra))
        return struct.pack("<4s5H3I2H", self.local_mark, *numbers) + name + self.local_extra + self.data

    def central(self, start: int) -> bytes:
        """Its entry in the directory."""
        start = start if self.start is None else self.start
        lengths = (len(self.name), len(self.extra), 0, self.disk, 0)
        numbers = (0x314, 20, self.flags, self.method, 0, 0, *self.fields(), *lengths, self.mode << 16, start)
        return struct.pack("<4s6H3I5H2I", b"PK\1\2", *numbers) + self.name + self.extra


def end_of_zip(entries: int, size: int, start: int, *, comment: bytes = b"", disk: int = 0, here: int | None = None) -> bytes:
    """The end mark."""
    return struct.pack("<4s4H2IH", b"PK\5\6", disk, disk, entries if here is None else here, entries, size, start, len(comment)) + comment


def end_64(entries: int, size: int, start: int, at: int, *, disks: int = 1, rest: int = 44) -> bytes:
    """The end mark of Zip64 that stands at `at`, and its locator."""
    numbers = (rest, 45, 45, 0, 0, entries, entries, size, start)
    return struct.pack("<4sQ2H2I4Q", b"PK\6\6", *numbers) + struct.pack("<4sIQI", b"PK\6\7", 0, at, disks)


def parts_of_zip(members: Iterable[Zipped]) -> tuple[bytes, bytes, int]:
    """Files, directory, and how many."""
    files, directory, count = b"", b"", 0
    for member in members:
        directory += member.central(len(files))
        files += member.local()
        count += 1
    return files, directory, count


def forged_zip(members: Iterable[Zipped], *, comment: bytes = b"") -> bytes:
    """A zip archive of these members."""
    files, directory, count = parts_of_zip(members)
    return files + directory + end_of_zip(count, len(directory), len(files), comment=comment)


@dataclass(frozen=True)
class Tarred:
    """One entry of a tar archive. What is None is what is true."""

    name: bytes
    content: bytes = b""
    kind: bytes = b"0"
    link: bytes = b""
    size: bytes | None = None
    magic: bytes = b"ustar\x0000"
    prefix: bytes = b""
    checksum: bytes | None = None
    in_header: tuple[int, bytes] = (0, b"")
    """Offset and bytes, over all else."""

    def __bytes__(self) -> bytes:
        size = b"%011o\0" % len(self.content) if self.size is None else self.size
        head = struct.pack("100s8s8s8s12s12s", self.name, b"644", b"0", b"0", size, b"0")
        rest = struct.pack("c100s8s32s32s8s8s155s12x", self.kind, self.link, self.magic, b"", b"", b"", b"", self.prefix)
        block = head + b" " * 8 + rest
        offset, over = self.in_header
        if over:
            block = block[:offset] + over + block[offset + len(over) :]
        checksum = b"%06o\0 " % sum(block) if self.checksum is None else self.checksum
        return block[:148] + checksum + block[156:] + self.content + bytes(-len(self.content) % BLOCK)

    def but(self, **fields: object) -> Tarred:
        """The same with other fields."""
        return replace(self, **fields)


def forged_tar(entries: Iterable[Tarred | bytes], *, end: bytes = END_OF_TAR) -> bytes:
    """A tar archive of these entries."""
    return b"".join(bytes(entry) for entry in entries) + end


def long_name(name: bytes, kind: bytes = b"L") -> Tarred:
    """The header of GNU tar that gives the next entry its name, or its link (`K`)."""
    return Tarred(b"././@LongLink", name + b"\0", kind, magic=b"ustar  \0")


def pax(*records: tuple[bytes, bytes], kind: bytes = b"x") -> Tarred:
    """An extended header."""
    return Tarred(b"PaxHeaders/x", b"".join(record(keyword, value) for keyword, value in records), kind)


def record(keyword: bytes, value: bytes) -> bytes:
    """One line of an extended header, with its length in front."""
    length = len(keyword) + len(value) + 3
    while len(b"%d" % length) + len(keyword) + len(value) + 3 != length:
        length = len(b"%d" % length) + len(keyword) + len(value) + 3
    return b"%d %s=%s\n" % (length, keyword, value)


LINK_MODE = stat.S_IFLNK | 0o777
