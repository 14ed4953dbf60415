"""
What an archive may make on the volume, whatever its kind: rules for paths, links and amounts.

Invariants: nothing is written outside of the target; what is written are directories and plain files
(a link inside the archive becomes a second name of its file; one that leads out, to a directory or
nowhere refuses the archive); no more bytes, entries, directories and characters of names than the
limits. What is kept in memory are the paths, and those are bounded. Blocks; runs in threads.
"""

from __future__ import annotations

import errno
import os
import posixpath
import re
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from adapter.errors import InvalidModel
from adapter.paths import TreeTooLarge, check_size, held_bytes, path_problem
from adapter.storage.pull.staged import open_file
from adapter.storage.search import MAX_OBJECTS, shown
from adapter.units import show_bytes
from adapter.volume.space import Reservation
from adapter.volume.volume import make_plain_directory
from adapter.workers import Stop

T = TypeVar("T")
CHUNK_BYTES = 256 * 1024
"""Most content that is in memory at once."""
RATIO = 200
"""Most bytes that a byte of an archive may become, on the whole; weights of zeros reach 1000, but not for all of a model."""
FREE_BYTES = 64 * 1024 * 1024
"""So much is always allowed: small archives of small files can be very dense."""
MAX_LINK_BYTES = 4096
"""Of the path that a link names. Source: Linux PATH_MAX."""
_MAX_LINKS = 40
_HERE = re.compile(r"\A(?:\./)+")
_NAMES_IT = (errno.ENAMETOOLONG, errno.EINVAL, errno.EILSEQ, errno.EEXIST, errno.EMLINK)
"""What a file system says of a name that it does not take, or holds already under another spelling."""


class Damaged(ValueError):
    """The archive is not what its format says. The text is the reason: `it ends in the middle`."""


Kind = Literal["file", "directory", "link", "hard link"]


class Entry(NamedTuple):
    """One entry of an archive."""

    name: str
    kind: Kind | None
    """None: it is something else, which is not unpacked."""
    size_bytes: int = 0
    pieces: Iterable[tuple[int, bytes]] = ()
    """
    Of a file, its content: offset and bytes, ascending; what lies between them reads as zeros. Of a link, the path that it
    names: as seen from its directory, or from the top (`hard link`).
    """


class ArchiveTree:
    """The files of one archive on their way into an empty directory."""

    def __init__(self, *, name: str, archive_bytes: int, target: Path, reserved: Reservation, max_bytes: int, stop: Stop) -> None:
        """`name` and `archive_bytes` are the archive's; `target` is an empty directory; `reserved` grows; `max_bytes` bounds all files."""
        self.limit_bytes = min(max_bytes, FREE_BYTES + RATIO * archive_bytes)
        """Most bytes that all files have together."""
        self._name = name
        self._target = target
        self._reserved = reserved
        self._reserved_bytes = 0
        self._stop = stop
        self._bytes = 0
        self._entries = 0
        self._held = 0
        self._files: dict[str, int] = {}
        self._directories: set[str] = set()
        self._links: dict[str, str] = {}

    def refusal(self, what: str) -> InvalidModel:
        """The error that says why this archive is refused: `holds 'a' twice`."""
        return InvalidModel(f"the archive {shown(self._name)} {what}")

    def announce(self, size_bytes: int, entries: int) -> None:
        """
        What the archive says of itself, before any of it is unpacked.

        Raises:
            InvalidModel: it is more than the limits.
            DiskFull: with both numbers.
        """
        self._check_entries(entries)
        self._reserve(size_bytes)

    def add(self, entry: Entry) -> None:
        """
        Unpack the next entry. Links are made by `finish`, since their files may come later.

        Raises:
            InvalidModel: it cannot lie below the target, is no kind of entry that is unpacked, or is more than the limits.
            DiskFull: with both numbers.
            OSError: the volume cannot be written; see `Volume.writing`.
            Stopped: the work is no longer wanted.
        """
        self._stop.check()
        self._entries += 1
        self._check_entries(self._entries)
        name = entry.name
        path = _HERE.sub("", name.removesuffix("/"))
        if path == "." or (not path and not name.startswith("/")):
            path = ""
        elif problem := path_problem(path):
            raise self.refusal(f"holds {shown(name)}, which cannot be unpacked: it {problem}")
        if path in self._files or path in self._links:
            raise self.refusal(f"holds {shown(path)} twice")
        if entry.kind == "directory" and not entry.size_bytes:
            self._directory(path)
            return
        if not path:
            raise self.refusal("holds a file without a name, or with the name of its top")
        self._directory(path.rpartition("/")[0])
        if entry.kind == "directory" or (entry.kind == "file" and name.endswith("/")) or path in self._directories:
            raise self.refusal(f"holds {shown(path)} both as a file and as a directory")
        self._keep(path)
        if entry.kind == "file":
            self._file(path, entry)
        elif entry.kind is None:
            raise self.refusal(f"holds {shown(path)}, which is neither a file nor a directory")
        elif entry.size_bytes > MAX_LINK_BYTES:
            raise self.refusal(f"holds the link {shown(path)}, which names a path of more than {MAX_LINK_BYTES} bytes")
        else:
            target = b"".join(content for _, content in entry.pieces).decode()
            base = posixpath.dirname(path) if entry.kind == "link" else ""
            self._links[path] = posixpath.normpath(posixpath.join(base, target))
            self._keep(self._links[path])

    def _directory(self, path: str) -> None:
        """Make a directory and those above it."""
        if path and path not in self._directories:
            self._directory(path.rpartition("/")[0])
            if path in self._files or path in self._links:
                raise self.refusal(f"holds {shown(path)} both as a file and as a directory")
            self._directories.add(path)
            self._keep(path)
            self._make(path, partial(make_plain_directory, self._target / path))

    def _file(self, path: str, entry: Entry) -> None:
        self._bytes += entry.size_bytes
        self._reserve(self._bytes)
        file = self._make(path, partial(open_file, self._target / path, is_new=True))
        try:
            end = 0
            for offset, content in entry.pieces:
                self._stop.check()
                self._reserved.write(file, content, offset)
                self._reserved.wrote(len(content))
                end = offset + len(content)
            if end < entry.size_bytes:
                os.ftruncate(file, entry.size_bytes)
        finally:
            os.close(file)
        self._files[path] = entry.size_bytes

    def finish(self) -> dict[str, int]:
        """
        Make the links.

        Returns:
            Every file's length in bytes by its path.

        Raises:
            InvalidModel: a link leads out or to no file, or there is no file at all.
            OSError: the volume cannot be written; see `Volume.writing`.
        """
        sizes = self._files.copy()
        for path in self._links:
            self._stop.check()
            source = self._end_of(path)
            sizes[path] = self._files[source]
            self._bytes += sizes[path]
            self._check_bytes(self._bytes)
            self._make(path, partial((self._target / path).hardlink_to, self._target / source))
        if not sizes:
            raise self.refusal("holds no files")
        self._reserved.change(sum(self._files.values()) - self._reserved_bytes)
        return sizes

    def _end_of(self, link: str) -> str:
        target = link
        for _ in range(_MAX_LINKS):
            if target not in self._links:
                break
            target = self._links[target]
        if target.startswith(("/", "../")) or target == "..":
            raise InvalidModel(f"the link {shown(link)} in the archive {shown(self._name)} leads out of it")
        if target not in self._files:
            raise InvalidModel(f"the link {shown(link)} in the archive {shown(self._name)} does not lead to a file in it")
        return target

    def _reserve(self, size_bytes: int) -> None:
        """Reserve bytes until these are reserved in all; in steps, since asking costs as much as a small file."""
        self._check_bytes(size_bytes)
        if size_bytes > self._reserved_bytes:
            step = max(size_bytes - self._reserved_bytes, CHUNK_BYTES)
            self._reserved.grow(step)
            self._reserved_bytes += step

    def _check_entries(self, count: int) -> None:
        if count > MAX_OBJECTS:
            raise self.refusal(f"holds more than {MAX_OBJECTS} entries; is it really one model?")

    def _keep(self, name: str) -> None:
        self._held += held_bytes(name)
        try:
            check_size(len(self._directories), self._held)
        except TreeTooLarge as problem:
            raise self.refusal(f"{problem}; is it really one model?") from problem

    def _check_bytes(self, size_bytes: int) -> None:
        if size_bytes > self.limit_bytes:
            raise self.refusal(
                f"unpacks to more than {show_bytes(self.limit_bytes)}, the limit for it (UNPACK_MAX_BYTES, and {RATIO} times its own size)"
            )

    def _make(self, path: str, action: Callable[[], T]) -> T:
        """What the file system says of a name is a fact about the archive; other trouble is the volume's."""
        try:
            return self._reserved.insist(action)
        except OSError as error:
            if error.errno not in _NAMES_IT:
                raise
            raise self.refusal(f"holds {shown(path)}, which the volume does not take: {error.strerror}") from error
