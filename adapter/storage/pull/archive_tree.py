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
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple, TypeVar

from adapter.errors import InvalidModel
from adapter.paths import TreeTooLarge, check_size, held_bytes, path_problem
from adapter.storage.search import MAX_OBJECTS, shown
from adapter.units import show_bytes
from adapter.volume.space import Reservation
from adapter.volume.volume import open_file
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
_HERE = re.compile(r"\A(?:\./)*(?:\.\Z)?")
"""What of a name means the top."""
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


@dataclass(eq=False)
class ArchiveTree:
    """The files of one archive on their way into an empty directory."""

    name: str
    """Of the archive, for people."""
    limit_bytes: int
    """Most that all files have together."""
    target: Path
    """An empty directory."""
    reserved: Reservation
    """Grows by what is unpacked."""
    stop: Stop
    size_bytes: int = 0
    reserved_bytes: int = 0
    entries: int = 0
    names_bytes: int = 0
    files: dict[str, int] = field(default_factory=dict)
    """Path → bytes."""
    directories: set[str] = field(default_factory=lambda: {""})
    links: dict[str, str] = field(default_factory=dict)
    """Path → the path that it names, from the top."""

    def refusal(self, what: str) -> InvalidModel:
        """The error that says why this archive is refused: `holds 'a' twice`."""
        return InvalidModel(f"the archive {shown(self.name)} {what}")

    def announce(self, size_bytes: int, entries: int) -> None:
        """
        What all files and entries have together, before that is unpacked. Bytes are reserved in steps: asking costs as much as a small
        file.

        Raises:
            InvalidModel: it is more than the limits.
            DiskFull: with both numbers.
        """
        if entries > MAX_OBJECTS:
            raise self.refusal(f"holds more than {MAX_OBJECTS} entries; is it really one model?")
        self._check(size_bytes)
        if size_bytes > self.reserved_bytes:
            step = max(size_bytes - self.reserved_bytes, CHUNK_BYTES)
            self.reserved.grow(step)
            self.reserved_bytes += step

    def add(self, entry: Entry) -> None:
        """
        Unpack the next entry. Links are made by `finish`, since their files may come later.

        Raises:
            InvalidModel: it cannot lie below the target, is no kind of entry that is unpacked, or is more than the limits.
            DiskFull: with both numbers.
            OSError: the volume cannot be written; see `Volume.writing`.
            Stopped: the work is no longer wanted.
        """
        self.stop.check()
        name, kind, size_bytes, pieces = entry
        is_file = kind == "file"
        self.entries += 1
        self.size_bytes += size_bytes if is_file else 0
        self.announce(self.size_bytes, self.entries)
        path = _HERE.sub("", name.removesuffix("/"))
        if (path or name.startswith("/")) and (problem := path_problem(path)):
            raise self.refusal(f"holds {shown(name)}, which cannot be unpacked: it {problem}")
        if path in self.files or path in self.links:
            raise self.refusal(f"holds {shown(path)} twice")
        if kind == "directory" and not size_bytes:
            self._directory(path)
            return
        if not path:
            raise self.refusal("holds a file without a name, or with the name of its top")
        self._directory(posixpath.dirname(path))
        if kind == "directory" or (is_file and name.endswith("/")) or path in self.directories:
            raise self._both(path)
        self._keep(path)
        if is_file:
            self._file(path, size_bytes, pieces)
        elif kind is None:
            raise self.refusal(f"holds {shown(path)}, which is neither a file nor a directory")
        elif size_bytes > MAX_LINK_BYTES:
            raise self.refusal(f"holds the link {shown(path)}, which names a path of more than {MAX_LINK_BYTES} bytes")
        else:
            target = b"".join(content for _, content in pieces).decode()
            base = posixpath.dirname(path) if kind == "link" else ""
            self.links[path] = end = posixpath.normpath(posixpath.join(base, target))
            self._keep(end)

    def _directory(self, path: str) -> None:
        """Make a directory and those above it."""
        if path not in self.directories:
            self._directory(posixpath.dirname(path))
            if path in self.files or path in self.links:
                raise self._both(path)
            self.directories.add(path)
            self._keep(path)
            self._make(path, (self.target / path).mkdir)

    def _both(self, path: str) -> InvalidModel:
        return self.refusal(f"holds {shown(path)} both as a file and as a directory")

    def _file(self, path: str, size_bytes: int, pieces: Iterable[tuple[int, bytes]]) -> None:
        with os.fdopen(self._make(path, partial(open_file, self.target / path, is_new=True)), "wb") as file:
            end = 0
            for offset, content in pieces:
                self.stop.check()
                self.reserved.write(file.fileno(), content, offset)
                end = offset + len(content)
            if end < size_bytes:
                file.truncate(size_bytes)
        self.files[path] = size_bytes

    def finish(self) -> dict[str, int]:
        """
        Make the links.

        Returns:
            Every file's length in bytes by its path.

        Raises:
            InvalidModel: a link leads out or to no file, or there is no file at all.
            OSError: the volume cannot be written; see `Volume.writing`.
        """
        self.reserved.change(self.size_bytes - self.reserved_bytes)
        sizes = self.files.copy()
        for path in self.links:
            self.stop.check()
            source = self._end_of(path)
            sizes[path] = self.files[source]
            self.size_bytes += sizes[path]
            self._check(self.size_bytes)
            self._make(path, partial((self.target / path).hardlink_to, self.target / source))
        if not sizes:
            raise self.refusal("holds no files")
        return sizes

    def _end_of(self, link: str) -> str:
        target = link
        for _ in range(_MAX_LINKS):
            target = self.links.get(target, target)
        if target in self.files:
            return target
        leads = "leads out of it" if f"{target}/".startswith(("/", "../")) else "does not lead to a file in it"
        raise InvalidModel(f"the link {shown(link)} in the archive {shown(self.name)} {leads}")

    def _check(self, size_bytes: int) -> None:
        if size_bytes > self.limit_bytes:
            raise self.refusal(
                f"unpacks to more than {show_bytes(self.limit_bytes)}, the limit for it (UNPACK_MAX_BYTES, and {RATIO} times its own size)"
            )

    def _keep(self, name: str) -> None:
        self.names_bytes += held_bytes(name)
        try:
            check_size(len(self.directories), self.names_bytes)
        except TreeTooLarge as problem:
            raise self.refusal(f"{problem}; is it really one model?") from problem

    def _make(self, path: str, action: Callable[[], T]) -> T:
        """What the file system says of a name is a fact about the archive; other trouble is the volume's."""
        try:
            return self.reserved.insist(action)
        except OSError as error:
            if error.errno not in _NAMES_IT:
                raise
            raise self.refusal(f"holds {shown(path)}, which the volume does not take: {error.strerror}") from error
