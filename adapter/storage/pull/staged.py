"""
The files of one pull on the volume, until the pull has ended. Blocks: its methods run in threads.

What they have made is known whenever they end, so that whoever undoes it leaves nothing. What goes wrong is told in the words
of the volume, and idle artifacts give way before a write fails for room.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adapter.errors import SourceUnavailable
from adapter.paths import directories_of
from adapter.space import Reservation
from adapter.storage.bucket import FileSink, StoredObject
from adapter.storage.checksums import Checksum
from adapter.storage.pull import preallocation
from adapter.storage.pull.spans import Lane, Plan, Span
from adapter.storage.pull.verified import Run, Whole
from adapter.volume import FILE_MODE, Volume, make_plain_directory
from adapter.workers import Stop

_NO_PIPES = (errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP)
"""Of a file system, or a kernel, that does not splice. Source: splice(2)."""


@dataclass(frozen=True)
class _Begun:
    """A file that several spans make."""

    has_space: bool
    whole: Whole


class StagedFiles:
    """Files that become a model."""

    def __init__(self, *, volume: Volume, objects: Mapping[str, StoredObject], room: Reservation, staged: Path | None, place: str) -> None:
        """
        Args:
            volume: where they are.
            objects: path in the directory → object.
            room: grows by their bytes.
            staged: the directory; a new one without it.
            place: where the objects are, for people.
        """
        self._place = place
        self._volume = volume
        self._objects = objects
        self._room = room
        self._total_bytes = sum(stored.size_bytes for stored in objects.values())
        self._made = staged
        """Staging, later the artifact."""
        self._begun: dict[str, _Begun] = {}

    def prepare(self, plan: Plan, stop: Stop) -> None:
        """Make the directories, and reserve the space of files that several threads write. Raises DiskFull, AdapterError."""
        with self._volume.writing(self._total_bytes):
            self._volume.restore()
            self._room.grow(self._total_bytes, len(self._objects))
            if self._made is None:
                self._made = self._room.insist(self._volume.new_staging)
            for directory in sorted(directories_of(self._objects)):  # parents first
                with suppress(FileExistsError):  # for files that were there before
                    self._room.insist(partial(make_plain_directory, self._made / directory))
            for path, stored in self._objects.items():
                stop.check()
                if plan.is_cut(stored):
                    self._begin(path, stored)

    def open(self, span: Span, lane: Lane) -> SpanFile:
        """Where the bytes of a span go. Raises DiskFull, AdapterError."""
        assert self._made is not None  # noqa: S101 - prepare has run
        begun = self._begun.get(span.path)
        with self._volume.writing(self._total_bytes):
            path = f"{self._made}/{span.path}"
            file = self._room.insist(lambda: _open(path, is_new=begun is None))
        whole = begun.whole if begun else Whole(span.stored, self._place)
        run = Run(whole, span.start, span.length)
        return SpanFile(self, file, span, lane, run, is_counted=not (begun and begun.has_space))

    def wrote(self, size_bytes: int) -> None:
        """So many bytes had no place before."""
        self._room.wrote(size_bytes)

    def write(self, file: int, chunk: bytes | memoryview, offset: int) -> None:
        """Write it whole."""
        with self._volume.writing(self._total_bytes):
            self._room.write(file, chunk, offset)

    def splice(self, pipe: int, file: int, most_bytes: int, offset: int) -> int:
        """Write what a pipe holds; 0 when the file system takes nothing from pipes."""
        with self._volume.writing(self._total_bytes):
            try:
                return self._room.insist(partial(os.splice, pipe, file, most_bytes, offset_dst=offset))
            except OSError as error:
                if error.errno in _NO_PIPES:
                    return 0
                raise

    def close(self, file: int) -> None:
        """That there was no room, a file system of a network may say only now. Raises DiskFull, AdapterError."""
        with self._volume.writing(self._total_bytes):
            os.close(file)

    def other_length(self, span: Span, found: int) -> SourceUnavailable:
        """Other bytes came than were asked for."""
        return SourceUnavailable(f"{span.stored.key!r} from {self._place} has {found} bytes from {span.start} on, asked were {span.length}")

    def finish(self, name: str | None, stop: Stop) -> Path:
        """Check that every file is as long as it was listed, and rename the directory if it gets a name."""
        assert self._made is not None  # noqa: S101 - prepare has run
        with self._volume.writing(self._total_bytes):
            for path, stored in self._objects.items():
                found = os.lstat(f"{self._made}/{path}").st_size
                if found != stored.size_bytes:
                    raise SourceUnavailable(f"{stored.key!r} from {self._place} has {found} bytes, listed were {stored.size_bytes}")
            stop.check()
            if name is not None:
                self._made = self._room.insist(partial(self._volume.publish, self._made, name))
        return self._made

    def undo(self, _stop: Stop) -> None:
        """Leave nothing."""
        if self._made is not None:
            self._volume.discard(self._made)

    def _begin(self, path: str, stored: StoredObject) -> None:
        file = self._room.insist(lambda: _open(f"{self._made}/{path}", is_new=True))
        try:
            has_space = self._room.insist(lambda: preallocation.preallocate(file, stored.size_bytes))
            self._begun[path] = _Begun(has_space, Whole(stored, self._place))
            if has_space:
                self._room.wrote(stored.size_bytes)
        finally:
            os.close(file)


class SpanFile(FileSink):
    """
    Writes what comes of a span to where it belongs.

    Leaving it closes the file, and counts what had no place before: DiskFull and AdapterError are raised when it takes none. With
    the last span of a file, what has come is compared with what the store says of the whole: SourceUnavailable is raised when
    these are not the bytes that were stored.
    """

    def __init__(self, files: StagedFiles, file: int, span: Span, lane: Lane, run: Run, *, is_counted: bool) -> None:
        self._files = files
        self._file = file
        self._offset = span.start
        self._span = span
        self._lane = lane
        self._run = run
        self._is_counted = is_counted

    @property
    def sees_bytes(self) -> bool:
        """As `FileSink`."""
        return self._run.is_computed

    @property
    def is_asking(self) -> bool:
        """As `FileSink`."""
        return self._run.is_asking

    def expect(self, told: Sequence[Checksum]) -> None:
        """As `FileSink`."""
        self._run.expect(told)

    def __call__(self, chunk: bytes | memoryview) -> None:
        """As `FileSink`."""
        self._run.add(chunk)
        self._files.write(self._file, chunk, self._offset)
        self._took(len(chunk))

    def take(self, pipe: int, most_bytes: int) -> int:
        """As `FileSink`."""
        if self.sees_bytes:
            return 0
        count = self._files.splice(pipe, self._file, most_bytes, self._offset)
        self._run.pass_by(count)
        self._took(count)
        return count

    def __enter__(self) -> SpanFile:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            with suppress(OSError):  # what has failed before is the cause
                os.close(self._file)
            return
        self._files.close(self._file)
        span, found = self._span, self._offset - self._span.start
        if found != span.length and not span.is_whole:  # a file that has its length before proves nothing in the end
            raise self._files.other_length(span, found)
        if self._is_counted:
            self._files.wrote(self._span.length)
        self._run.end()

    def _took(self, count: int) -> None:
        self._offset += count
        self._lane.moved_bytes += count


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
            os.unlink(path)  # noqa: PTH108 - whoever tries again finds nothing in the way
            raise
    return file
