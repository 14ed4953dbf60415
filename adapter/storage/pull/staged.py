"""
Where the bytes of objects go: memory, or the files of one pull on the volume, until the pull has ended. Blocks; runs in threads.

Whether they are what their store says of them is verified here: checksums of the spans, made one when the last of them is there,
and computed while the bytes are in memory anyway. A span that breaks off and goes on is one run of bytes, so nothing is counted
twice. Objects of whom nothing is told, or nothing that can be computed, are as they came.

What goes wrong is told in the words of the volume, and idle artifacts give way before a write fails on a full volume.
"""

from __future__ import annotations

import base64
import os
import stat
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from adapter.errors import SourceUnavailable
from adapter.storage.bucket import Read, StoredObject
from adapter.storage.checksums import MOST_HASHED_BYTES, Checksum, Running, combined, running
from adapter.storage.search import shown
from adapter.units import MIB
from adapter.volume.space import Reservation
from adapter.volume.volume import FILE_MODE, Volume
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

    def heard(self, told: Sequence[Checksum], length: int) -> Running | None:
        """Remember what an answer tells. Returns what computes it of a run: the first that can be, the same for all runs."""
        is_hashed = length == self.stored.size_bytes <= MOST_HASHED_BYTES
        with self._lock:
            for each in told:
                is_possible = each.algorithm == (self._algorithm or each.algorithm) and (each.is_combined or is_hashed)
                if is_possible and (found := running(each.algorithm)) is not None:
                    self._algorithm = each.algorithm
                    self.told |= {other.value for other in told if other.value is not None and other.algorithm == each.algorithm}
                    return found
        return None

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


class Run(Read):
    """Bytes of an object, compared with what its store says of it. Belongs to one thread at a time."""

    def __init__(self, whole: Whole, start: int, length: int) -> None:
        super().__init__(whole.stored, start, length)
        self._whole = whole
        self._running: Running | None = None

    def expect(self, told: Sequence[Checksum]) -> bool:
        """As `Read`: one request for each object that comes in several runs. What has come before cannot be verified any more."""
        if self._running is not None or not self.taken:
            found = self._whole.heard(told, self.length)
            self._running = self._running or found
        is_first_of_many = self.start == 0 and self.length < self.wanted.size_bytes
        return self._running is not None and is_first_of_many and not self._whole.told

    def give(self, chunk: bytes | memoryview) -> None:
        """As `Read`."""
        if self._running is not None:
            self._running.update(chunk)
        super().give(chunk)

    def end(self) -> None:
        """As `Read`. Raises SourceUnavailable, as `Whole.ran`."""
        if self._running is not None:
            self._whole.ran(self.start, self.length, self._running.digest())
        super().end()


class Part(NamedTuple):
    """Bytes of one object."""

    path: str
    start: int
    length: int


@dataclass(frozen=True)
class PartSizes:
    """How large files are cut."""

    part_bytes: int = 16 * MIB
    """Most that a request asks for."""
    whole_bytes: int = 4 * MIB
    """Files of at most these bytes come in one request."""


PART_SIZES = PartSizes()
FIRST_CONNECTIONS = 4
"""Of a pull. A large file has as many parts at least: with fewer, a small model gets a small share beside a large one."""


class StagedFiles:
    """Files of a directory, whose folders are there."""

    def __init__(self, volume: Volume, folder: Path, objects: Mapping[str, StoredObject], reserved: Reservation, place: str) -> None:
        """`objects`: path in the folder → object; `reserved` grows by their bytes; `place`: where they are, for people."""
        self.folder = folder
        self.objects = objects
        self.reserved = reserved
        self.open: set[int] = set()
        """Files that are being written."""
        self.moved_bytes = 0
        """Of all parts, on the volume."""
        self.ended = 0
        """Parts that have come."""
        self._place = place
        self._volume = volume
        self._total_bytes = sum(stored.size_bytes for stored in objects.values())
        self._cut: dict[str, Whole] = {}
        """Files that come in parts."""

    def prepare(self, sizes: PartSizes, stop: Stop) -> deque[Part]:
        """
        Make the files that are empty, or come in parts.

        Returns what is asked for, the largest files first, so that none of them is the last one. Raises DiskFull, AdapterError.
        """
        parts: deque[Part] = deque()
        with self.writing():
            self.reserved.grow(self._total_bytes, len(self.objects))
            for path, stored in sorted(self.objects.items(), key=lambda item: -item[1].size_bytes):
                stop.check()
                size, length = stored.size_bytes, stored.size_bytes
                if size > sizes.whole_bytes and stored.is_divisible and stored.is_versioned:
                    length = min(sizes.part_bytes, -(-size // FIRST_CONNECTIONS))
                    self._cut[path] = Whole(stored, self._place)
                if path in self._cut or not size:
                    os.close(self.reserved.insist(partial(open_file, f"{self.folder}/{path}", is_new=True)))
                parts += [Part(path, start, min(length, size - start)) for start in range(0, size, length or 1)]
        return parts

    def read(self, part: Part) -> Read:
        """What is asked for, and where it goes."""
        whole = self._cut.get(part.path)
        return PartFile(self, part, whole or Whole(self.objects[part.path], self._place), is_new=whole is None)

    def writing(self) -> AbstractContextManager[None]:
        """As `Volume.writing`, of all these files."""
        return self._volume.writing(self._total_bytes)

    def close(self, _stop: Stop) -> None:
        """Let go of what is open. No read goes on any more."""
        for file in self.open:
            with suppress(OSError):  # what has failed before is the cause
                os.close(file)


class PartFile(Run):
    """
    Writes what comes of a part to where it belongs. The file is opened when the first bytes come.

    Raises DiskFull and AdapterError when the volume takes none, and SourceUnavailable from `end`, as `Whole.ran`.
    """

    def __init__(self, files: StagedFiles, part: Part, whole: Whole, *, is_new: bool) -> None:
        super().__init__(whole, part.start, part.length)
        self._files = files
        self._open = partial(open_file, f"{files.folder}/{part.path}", is_new=is_new)
        self._file = -1
        self.written_bytes = part.length

    def keep(self, chunk: bytes | memoryview) -> None:
        """As `Read`."""
        files = self._files
        with files.writing():
            if self._file < 0:
                self._file = files.reserved.insist(self._open)
                files.open.add(self._file)
            files.reserved.write(self._file, chunk, self.next)
        files.moved_bytes += len(chunk)

    def end(self) -> None:
        """As `Read`. A file system of a network may say only now that it is full."""
        files = self._files
        files.open.discard(self._file)
        with files.writing():
            os.close(self._file)
        files.reserved.wrote(self.length)
        files.ended += 1
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
