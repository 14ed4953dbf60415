"""
Archives made into plain files: `.tar`, `.tar.gz`, `.tgz`, `.zip`, safely.

Invariants: nothing is written outside of the target; what is written are directories and plain files
(a link inside the archive becomes a second name of its file; one that leads out, to a directory or
nowhere refuses the archive, and so does a device or an absolute name); no more bytes and entries than
the limits, whatever the archive says of itself. Blocks; runs in threads. Knows no store.
"""

from __future__ import annotations

import gzip
import io
import os
import posixpath
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from adapter.errors import InvalidModel, InvalidRequest
from adapter.paths import path_problem
from adapter.storage.search import MAX_OBJECTS
from adapter.units import show_bytes
from adapter.volume import FILE_MODE, Volume, make_plain_directory
from adapter.workers import Stop

SUFFIXES = (".tar.gz", ".tgz", ".tar", ".zip")
_OTHERS = (".gz", ".bz2", ".tbz2", ".xz", ".txz", ".zst", ".7z", ".rar")
CHUNK_BYTES = 256 * 1024
RATIO = 200
"""Most bytes that a byte of an archive may become, on the whole; weights of zeros reach 1000, but not for all of a model."""
FREE_BYTES = 64 * 1024 * 1024
"""So much is always allowed: small archives of small files can be very dense."""
HEADER_BYTES = 2 * 1024 * 1024
"""Of one tar entry, its long names and attributes included: tarfile reads them into memory."""
_LINK_BYTES = 4096
_MAX_LINKS = 40


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


class Unpacking:
    """One archive on its way into an empty directory."""

    def __init__(self, *, name: str, target: Path, volume: Volume, max_bytes: int, stop: Stop) -> None:
        """`name` is the archive's, and tells its kind; `target` is an empty directory; `max_bytes` bounds all files together."""
        self._name = name
        self._target = target
        self._volume = volume
        self._limit_bytes = max_bytes
        self._stop = stop
        self._bytes = 0
        self._entries = 0
        self._files: set[str] = set()
        self._directories: set[str] = set()
        self._links: dict[str, str] = {}

    def run(self, archive: Path) -> None:
        """Unpack it. Raises InvalidModel: damaged, or with content that is not unpacked; DiskFull."""
        size = archive.stat().st_size
        self._limit_bytes = min(self._limit_bytes, FREE_BYTES + RATIO * size)
        with archive.open("rb") as file, self._translated():
            if self._name.lower().endswith(".zip"):
                self._unzip(file)
            else:
                self._untar(file, is_packed=not self._name.lower().endswith(".tar"))
        for path in self._links:
            self._link(path)
        if not self._files:
            raise InvalidModel(f"the archive {self._name!r} holds no files")

    def _untar(self, file: BinaryIO, *, is_packed: bool) -> None:
        unpacked = cast("IO[bytes]", gzip.GzipFile(fileobj=file)) if is_packed else file
        metered = _Metered(unpacked, self._stop)
        with tarfile.open(fileobj=metered, mode="r|", errors="strict") as tar:
            while True:
                metered.allow(HEADER_BYTES)
                member = tar.next()
                if member is None:
                    break
                cast("Any", tar).members.clear()  # it would remember every entry
                path = self._checked(member.name)
                if path is None or member.isdir():
                    self._make_directory(path)
                elif member.isreg():
                    content = tar.extractfile(member)
                    assert content is not None  # noqa: S101 - it is a regular file
                    metered.allow(HEADER_BYTES + member.size)
                    self._write(path, member.size, content)
                elif member.issym():
                    self._note_link(path, posixpath.join(posixpath.dirname(path), member.linkname))
                elif member.islnk():
                    self._note_link(path, member.linkname)
                else:
                    raise InvalidModel(f"the archive {self._name!r} holds {path!r}, which is neither a file nor a directory")

        while metered.read(CHUNK_BYTES):  # to the end of the stream, where gzip has its checksum
            continue

    def _unzip(self, file: BinaryIO) -> None:
        with zipfile.ZipFile(file) as archive:
            for member in archive.infolist():
                path = self._checked(member.filename)
                kind = stat.S_IFMT(member.external_attr >> 16)
                if path is None or member.is_dir():
                    self._make_directory(path)
                    continue
                if member.flag_bits & 1:
                    raise InvalidModel(f"the archive {self._name!r} is encrypted")
                with archive.open(member) as content:
                    if kind == stat.S_IFLNK:
                        link = content.read(_LINK_BYTES).decode("utf-8", "strict")
                        self._note_link(path, posixpath.join(posixpath.dirname(path), link))
                    elif kind in (0, stat.S_IFREG):
                        self._write(path, member.file_size, content)
                    else:
                        raise InvalidModel(f"the archive {self._name!r} holds {path!r}, which is neither a file nor a directory")

    def _checked(self, name: str) -> str | None:
        """The path of an entry, or None for the top itself."""
        self._stop.check()
        self._entries += 1
        if self._entries > MAX_OBJECTS:
            raise InvalidModel(f"the archive {self._name!r} holds more than {MAX_OBJECTS} entries; is it really one model?")
        path = name.removesuffix("/")
        while path.startswith("./"):
            path = path[2:]
        if path in ("", ".") and not name.startswith("/"):
            return None
        if problem := path_problem(path):
            raise InvalidModel(f"the archive {self._name!r} holds {name[:200]!r}, which cannot be unpacked: it {problem}")
        path.encode("utf-8")
        if path in self._files or path in self._links:
            raise InvalidModel(f"the archive {self._name!r} holds {path!r} twice")
        return path

    def _make_directory(self, path: str | None) -> None:
        if not path or path in self._directories:
            return
        self._make_directory(posixpath.dirname(path))
        if path in self._files or path in self._links:
            raise InvalidModel(f"the archive {self._name!r} holds {path!r} both as a file and as a directory")
        make_plain_directory(self._target / path)
        self._directories.add(path)

    def _prepare(self, path: str) -> None:
        """Make the directory of a file or link."""
        self._make_directory(posixpath.dirname(path))
        if path in self._directories:
            raise InvalidModel(f"the archive {self._name!r} holds {path!r} both as a file and as a directory")

    def _write(self, path: str, size_bytes: int, content: IO[bytes]) -> None:
        self._prepare(path)
        self._volume.require_room(size_bytes, 1)
        self._count(size_bytes)
        left = size_bytes
        file = os.open(self._target / path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
        with open(file, "wb", buffering=0) as out:  # noqa: PTH123 - a descriptor
            os.fchmod(file, FILE_MODE)
            while chunk := content.read(CHUNK_BYTES):
                self._stop.check()
                left -= len(chunk)
                if left < 0:
                    break
                out.write(chunk)
        if left:
            raise InvalidModel(f"the archive {self._name!r} is damaged: {path!r} is shorter or longer than the archive says")
        self._files.add(path)

    def _count(self, size_bytes: int) -> None:
        self._bytes += size_bytes
        if self._bytes > self._limit_bytes:
            raise InvalidModel(
                f"the archive {self._name!r} unpacks to more than {show_bytes(self._limit_bytes)}, the limit for it "
                f"(UNPACK_MAX_BYTES, and {RATIO} times its own size)"
            )

    def _note_link(self, path: str, target: str) -> None:
        self._prepare(path)
        self._links[path] = target

    def _link(self, path: str) -> None:
        target = path
        for _ in range(_MAX_LINKS):
            if target not in self._links:
                break
            target = posixpath.normpath(self._links[target])
        if target.startswith(("/", "../")) or target == "..":
            raise InvalidModel(f"the link {path!r} in the archive {self._name!r} leads out of it")
        if target not in self._files:
            raise InvalidModel(f"the link {path!r} in the archive {self._name!r} does not lead to a file in it")
        self._count((self._target / target).stat().st_size)
        (self._target / path).hardlink_to(self._target / target)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (tarfile.TarError, zipfile.BadZipFile, zlib.error, gzip.BadGzipFile, EOFError, NotImplementedError, ValueError) as error:
            what = "is damaged, or not what its name says" if not isinstance(error, NotImplementedError) else "is packed in an unknown way"
            raise InvalidModel(f"the archive {self._name!r} {what} ({type(error).__name__})") from error


class _Metered(io.RawIOBase):
    """A stream that gives no more than was allowed before, and ends when the work is stopped."""

    def __init__(self, inner: IO[bytes], stop: Stop) -> None:
        super().__init__()
        self._inner = inner
        self._stop = stop
        self._allowed = 0

    def allow(self, count: int) -> None:
        self._allowed = max(self._allowed, count)

    def read(self, size: int = -1, /) -> bytes:
        self._stop.check()
        if self._allowed < 0:
            raise tarfile.ReadError("a header without end")
        chunk = self._inner.read(size)
        self._allowed -= len(chunk)
        return chunk
