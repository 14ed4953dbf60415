"""
Where the bytes of objects go: memory, or the files of one pull on the volume, until the pull has ended. Blocks; runs in threads.

Whether they are what their store says of them is verified here: checksums of the spans, made one when the last of them is there,
and computed while the bytes are in memory anyway. A span that breaks off and goes on is one run of bytes, so nothing is counted
twice. Objects of whom nothing is told, or nothing that can be computed, are as they came.

What the files' methods have made is known whenever they end, so that an undo leaves nothing. What goes wrong is told in the words
of the volume, and idle artifacts give way before a write fails on a full volume.
"""

from __future__ import annotations

import base64
import os
import stat
import threading
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from adapter.errors import SourceUnavailable
from adapter.paths import directories_of
from adapter.storage.bucket import FileSink, StoredObject
from adapter.storage.checksums import MOST_HASHED_BYTES, Checksum, Running, combined, running
from adapter.storage.search import shown
from adapter.volume.space import Reservation
from adapter.volume.volume import FILE_MODE, Volume, make_plain_directory
from adapter.workers import Stop


class Whole:
    """One object, of which any number of runs come. Used from any thread."""

    def __init__(self, stored: StoredObject, place: str) -> None:
        """`place`: where it is, for people."""
        self.stored = stored
        self._place = place
        self._lock = threading.Lock()
        self._algorithm = ""
        """That is computed; empty: not chosen yet."""
        self.told: set[bytes] = set()
        """By all answers: a store that contradicts itself is not believed."""
        self._runs: list[tuple[int, int, bytes]] = []
        """Start, length, checksum."""

    def choose(self, told: Sequence[Checksum], length: int) -> Running | None:
        """What is computed of a run: the first that can be, the same for all runs. None: nothing."""
        is_hashed = length == self.stored.size_bytes <= MOST_HASHED_BYTES
        with self._lock:
            for each in told:
                is_possible = each.algorithm == (self._algorithm or each.algorithm) and (each.is_combined or is_hashed)
                if is_possible and (found := running(each.algorithm)) is not None:
                    self._algorithm = each.algorithm
                    return found
        return None

    def note(self, told: Sequence[Checksum]) -> None:
        """Remember what an answer tells."""
        with self._lock:
            self.told.update(each.value for each in told if each.value is not None and each.algorithm == self._algorithm)

    def ran(self, start: int, length: int, checksum: bytes) -> None:
        """
        A run is there. Of each byte this is told once.

        Raises:
            SourceUnavailable: the last run, and the bytes are not what the store says of them. They may have been damaged
                on their way, so another load may help; the bytes that have come do not get better.
        """
        with self._lock:
            self._runs.append((start, length, checksum))
            runs = sorted(self._runs)
            if not self.told or sum(length for _, length, _ in runs) != self.stored.size_bytes:
                return
        _, _, found = runs[0]
        for _, next_bytes, following in runs[1:]:
            found = combined(self._algorithm, found, following, next_bytes)
        if wrong := self.told - {found}:
            told, came = (base64.b64encode(each).decode() for each in (min(wrong), found))
            text = f"their {self._algorithm.upper()} is {came}, and the store tells {told}"
            text = f"the bytes of {shown(self.stored.key)} from {self._place} are not those that were stored: {text}"
            raise SourceUnavailable(text, can_pass=False)


class Run(FileSink):
    """Bytes of an object, in their order. Belongs to one thread. A subclass keeps them."""

    def __init__(self, whole: Whole, start: int, length: int) -> None:
        self._whole = whole
        self._start = start
        self._length = length
        self._came = 0
        self._running: Running | None = None

    @property
    def is_asking(self) -> bool:
        """As `FileSink`: one request for each object that comes in several runs."""
        is_first_of_many = self._start == 0 and self._length < self._whole.stored.size_bytes
        return self._running is not None and is_first_of_many and not self._whole.told

    def expect(self, told: Sequence[Checksum]) -> None:
        """As `FileSink`. Bytes that have passed by before cannot be verified any more."""
        if self._running is None and not self._came:
            self._running = self._whole.choose(told, self._length)
        if self._running is not None:
            self._whole.note(told)

    def __call__(self, chunk: bytes | memoryview) -> None:
        """As `FileSink`."""
        if self._running is not None:
            self._running.update(chunk)
        self.keep(chunk)
        self._came += len(chunk)

    def keep(self, chunk: bytes | memoryview) -> None:
        """Bytes that have come, behind `_came` others. Raises what `__call__` may."""
        raise NotImplementedError

    def end(self) -> None:
        """As `FileSink`. Raises SourceUnavailable, as `Whole.ran`."""
        if self._running is not None and self._came == self._length:
            self._whole.ran(self._start, self._length, self._running.digest())


class Content(Run):
    """A whole object, in memory."""

    writes = False

    def __init__(self, stored: StoredObject, place: str) -> None:
        """As `Whole`."""
        super().__init__(Whole(stored, place), 0, stored.size_bytes)
        self.content = bytearray()

    def keep(self, chunk: bytes | memoryview) -> None:
        """As `Run`."""
        self.content += chunk


class Part(NamedTuple):
    """Bytes of one object."""

    path: str
    stored: StoredObject
    start: int
    length: int


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
                    os.close(self._reserved.insist(partial(open_file, f"{self._made}/{path}", is_new=True)))
                if path in cut:
                    self._cut[path] = Whole(stored, self._place)

    def sink(self, part: Part) -> PartFile:
        """Where the bytes of a part go."""
        return PartFile(self, part, self._cut.get(part.path) or Whole(part.stored, self._place))

    def open(self, path: str) -> int:
        """A file to write, which `close` or `undo` closes. Raises DiskFull, AdapterError."""
        with self._volume.writing(self._total_bytes):
            file = self._reserved.insist(lambda: open_file(f"{self._made}/{path}", is_new=path not in self._cut))
        self._open.add(file)
        return file

    def write(self, file: int, chunk: bytes | memoryview, offset: int) -> None:
        """Write it whole."""
        with self._volume.writing(self._total_bytes):
            self._reserved.write(file, chunk, offset)
        self.moved_bytes += len(chunk)

    def close(self, file: int, size_bytes: int) -> None:
        """The part has its place. A file system of a network may say only now that it is full. Raises DiskFull, AdapterError."""
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


def open_file(path: str | Path, *, is_new: bool) -> int:
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
