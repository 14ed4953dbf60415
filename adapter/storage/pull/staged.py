"""
The files of one pull on the volume, until the pull has ended. Blocks: its methods run in threads.

What they have made is known whenever they end, so that an undo leaves nothing. What goes wrong is told in the words
of the volume, and idle artifacts give way before a write fails on a full volume.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adapter.errors import SourceUnavailable
from adapter.paths import directories_of
from adapter.storage.bucket import StoredObject
from adapter.storage.pull.verified import Run, Whole
from adapter.volume.space import Reservation
from adapter.volume.volume import FILE_MODE, Volume, make_plain_directory
from adapter.workers import Stop


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes of one object."""

    path: str
    stored: StoredObject
    start: int
    length: int

    @property
    def is_whole(self) -> bool:
        """All of the object."""
        return self.length == self.stored.size_bytes


class StagedFiles:
    """Files that become a model."""

    def __init__(
        self, *, volume: Volume, objects: Mapping[str, StoredObject], reserved: Reservation, staged: Path | None, place: str
    ) -> None:
        """
        Args:
            volume: where they are.
            objects: path in the directory → object.
            reserved: grows by their bytes.
            staged: the directory; a new one without it.
            place: where the objects are, for people.
        """
        self._place = place
        self._volume = volume
        self._objects = objects
        self._reserved = reserved
        self._total_bytes = sum(stored.size_bytes for stored in objects.values())
        self._made = staged
        self._cut: dict[str, Whole] = {}
        """Files that come in parts."""
        self._open: set[int] = set()
        self.moved_bytes = 0
        """Of all parts, on the volume."""
        self.ended = 0
        """Parts that have come."""

    def prepare(self, cut: Set[str], stop: Stop) -> None:
        """Make the directories, and the files of these paths, which come in parts. Raises DiskFull, AdapterError."""
        with self._volume.writing(self._total_bytes):
            self._volume.restore()
            self._reserved.grow(self._total_bytes, len(self._objects))
            if self._made is None:
                self._made = self._reserved.insist(self._volume.new_staging)
            for directory in sorted(directories_of(self._objects)):  # parents first
                with suppress(FileExistsError):  # for files that were there before
                    self._reserved.insist(partial(make_plain_directory, self._made / directory))
            for path, stored in self._objects.items():
                stop.check()
                if path in cut or not stored.size_bytes:
                    os.close(self._reserved.insist(partial(_open, f"{self._made}/{path}", is_new=True)))
                if path in cut:
                    self._cut[path] = Whole(stored, self._place)

    def sink(self, part: Part) -> PartFile:
        """Where the bytes of a part go."""
        return PartFile(self, part, self._cut.get(part.path) or Whole(part.stored, self._place))

    def open(self, path: str) -> int:
        """A file to write, which `close` or `undo` closes. Raises DiskFull, AdapterError."""
        with self._volume.writing(self._total_bytes):
            file = self._reserved.insist(lambda: _open(f"{self._made}/{path}", is_new=path not in self._cut))
        self._open.add(file)
        return file

    def write(self, file: int, chunk: bytes | memoryview, offset: int) -> None:
        """Write it whole."""
        with self._volume.writing(self._total_bytes):
            self._reserved.write(file, chunk, offset)
        self.moved_bytes += len(chunk)

    def close(self, file: int, size_bytes: int) -> None:
        """These bytes have their place. A file system of a network may say only now that it is full. Raises DiskFull, AdapterError."""
        self._open.discard(file)
        with self._volume.writing(self._total_bytes):
            os.close(file)
        self._reserved.wrote(size_bytes)
        self.ended += 1

    def finish(self, stop: Stop) -> Path:
        """Check that every file is as long as it was listed. Returns the directory."""
        assert self._made is not None  # noqa: S101 - prepare has run
        with self._volume.writing(self._total_bytes):
            for path, stored in self._objects.items():
                found = os.lstat(f"{self._made}/{path}").st_size
                if found != stored.size_bytes:
                    raise SourceUnavailable(f"{stored.key!r} from {self._place} has {found} bytes, listed were {stored.size_bytes}")
                stop.check()
        return self._made

    def undo(self, _stop: Stop) -> None:
        """Leave nothing. No sink is used any more."""
        for file in self._open:
            with suppress(OSError):  # what has failed before is the cause
                os.close(file)
        if self._made is not None:
            self._volume.discard(self._made)


class PartFile(Run):
    """
    Writes what comes of a part to where it belongs. The file is opened when the first bytes come.

    Raises DiskFull and AdapterError when the volume takes none, and SourceUnavailable from `end`, as `Whole.ran`.
    """

    def __init__(self, files: StagedFiles, part: Part, whole: Whole) -> None:
        super().__init__(whole, part.start, part.length)
        self._files = files
        self._path = part.path
        self._file = -1

    def keep(self, chunk: bytes | memoryview) -> None:
        """As `Run`."""
        if self._file < 0:
            self._file = self._files.open(self._path)
        self._files.write(self._file, chunk, self._start + self._came)

    def end(self) -> None:
        """As `FileSink`."""
        self._files.close(self._file, self._length)
        super().end()


def _open(path: str, *, is_new: bool) -> int:
    """To write. What is new must not be there: a file with a second name elsewhere is not ours to change. Raises OSError."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else 0)
    file = os.open(path, flags, FILE_MODE)
    if is_new:
        try:
            if stat.S_IMODE(os.fstat(file).st_mode) != FILE_MODE:  # our umask; of NFS, fchmod is a round trip, and fstat none
                os.fchmod(file, FILE_MODE)
        except BaseException:
            os.close(file)
            os.unlink(path)  # noqa: PTH108 - another try finds nothing in the way
            raise
    return file
