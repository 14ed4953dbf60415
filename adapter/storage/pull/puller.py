"""
Bytes from a bucket onto our volume: plan → stage → verify, and publish for whoever does no more with them.

Invariants: nothing is visible before it is whole; a pull that fails or is cancelled leaves nothing,
and its threads have ended before it says so; memory is bounded by the threads, whatever the size.
One pull has at most `lanes` threads, and gives each back after about one part, so that a big pull
does not starve a small one; one endpoint has at most half of the threads. Knows no store.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from adapter.errors import SourceUnavailable
from adapter.paths import directories_of
from adapter.space import Reservation
from adapter.storage.bucket import Bucket, StoredObject
from adapter.storage.lanes import EndpointThreads
from adapter.telemetry.metrics import PULLED_BYTES, PULLED_FILES
from adapter.volume import FILE_MODE, Volume, make_plain_directory
from adapter.waits import Waits
from adapter.workers import Stop, Workers

_FILES_PER_TURN = 64
"""Small files that a thread pulls before it looks whether others wait for it."""


class Puller:
    """Pulls models, any number at once, over one pool of threads."""

    def __init__(self, *, volume: Volume, pulls: EndpointThreads, files: Workers, lanes: int, part_bytes: int) -> None:
        """
        Args:
            volume: where files go.
            pulls: threads that talk to stores.
            files: threads that work on the volume alone.
            lanes: threads that one pull may have at once.
            part_bytes: larger files are pulled in ranges of this size.
        """
        self._volume = volume
        self._pulls = pulls
        self._files = files
        self._lanes = lanes
        self._part_bytes = part_bytes

    async def pull(
        self,
        bucket: Bucket,
        objects: Mapping[str, StoredObject],
        waits: Waits,
        *,
        room: Reservation,
        staged: Path | None = None,
        name: str | None = None,
    ) -> Path:
        """
        Pull objects into a directory, and check that each is as long as it was listed.

        What is waited for until a thread is free is noted in `waits`; the bucket notes the rest.

        Args:
            bucket: where they are.
            objects: path in the directory → object, from a checked listing.
            waits: of those who wait for it.
            room: grows by the bytes of the objects; whoever has it counts on for what was pulled.
            staged: a staging directory that may hold other files already; a new one without it. It is the puller's until
                it returns: a pull that fails or is cancelled discards it.
            name: publish the directory as an artifact of this name.

        Returns:
            The directory, which is the caller's: the artifact with a name, else still in staging.

        Raises:
            SourceError: the first one that any object met.
            DiskFull: with the numbers; nothing that is idle is left to give way.
        """
        job = _Pull(volume=self._volume, bucket=bucket, objects=objects, part_bytes=self._part_bytes, room=room, staged=staged)
        try:
            await self._files.run(job.prepare)
            await self._run_lanes(job, waits)
            made = await self._files.run(lambda stop: job.finish(name, stop))
        except BaseException:
            await self._files.run_to_end(job.undo)
            raise
        PULLED_FILES.labels(bucket.kind).inc(len(objects))
        return made

    async def _run_lanes(self, job: _Pull, waits: Waits) -> None:
        failures: BaseExceptionGroup[BaseException] | None = None
        try:
            async with asyncio.TaskGroup() as lanes:
                for _ in range(min(self._lanes, len(job.parts))):
                    lanes.create_task(self._lane(job, waits))
        except BaseExceptionGroup as group:
            failures = group
        if failures is not None:
            raise failures.exceptions[0]  # the first one; the others were stopped because of it

    async def _lane(self, job: _Pull, waits: Waits) -> None:
        while job.parts:
            await self._pulls.run(job.bucket.endpoint, waits, job.take_turn)


@dataclass(frozen=True)
class _Part:
    path: str
    stored: StoredObject
    start: int
    length: int


class _Pull:
    """One pull: its methods run in threads, and what they have made is known whenever they end."""

    def __init__(
        self,
        *,
        volume: Volume,
        bucket: Bucket,
        objects: Mapping[str, StoredObject],
        part_bytes: int,
        room: Reservation,
        staged: Path | None,
    ) -> None:
        self._volume = volume
        self.bucket = bucket
        self._objects = objects
        self._part_bytes = part_bytes
        self._room = room
        self._total_bytes = sum(stored.size_bytes for stored in objects.values())
        self._made = staged
        """Staging, later the artifact."""
        self.parts: deque[_Part] = deque()
        """What is still to be pulled, once `prepare` has run."""

    def prepare(self, stop: Stop) -> None:
        """Cut the objects into parts, make the directories, and reserve the space of files that several threads write."""
        parts = [_Part(path, stored, *span) for path, stored in self._objects.items() for span in _spans(stored, self._part_bytes)]
        parts.sort(key=lambda part: -part.length)  # so that no large part is the last one
        self.parts.extend(parts)
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
                if stored.size_bytes > self._part_bytes:
                    self._reserve(self._made / path, stored.size_bytes)

    def take_turn(self, stop: Stop) -> None:
        """Pull parts until all or a fair share are done."""
        moved = 0
        for _ in range(_FILES_PER_TURN):
            try:
                part = self.parts.popleft()
            except IndexError:
                return
            stop.check()
            self._pull(part, stop)
            PULLED_BYTES.labels(self.bucket.kind).inc(part.length)
            moved += part.length
            if moved >= self._part_bytes:
                return

    def finish(self, name: str | None, stop: Stop) -> Path:
        """Check that every file is as long as it was listed, and rename the directory if it gets a name."""
        assert self._made is not None  # noqa: S101 - prepare has run
        with self._volume.writing(self._total_bytes):
            for path, stored in self._objects.items():
                found = (self._made / path).lstat().st_size
                if found != stored.size_bytes:
                    raise SourceUnavailable(f"{stored.key!r} from {self.bucket.place} has {found} bytes, listed were {stored.size_bytes}")
            stop.check()
            if name is not None:
                self._made = self._room.insist(partial(self._volume.publish, self._made, name))
        return self._made

    def undo(self, _stop: Stop) -> None:
        """Leave nothing."""
        if self._made is not None:
            self._volume.discard(self._made)

    def _pull(self, part: _Part, stop: Stop) -> None:
        assert self._made is not None  # noqa: S101 - prepare has run
        with self._volume.writing(self._total_bytes):
            is_new = part.stored.size_bytes <= self._part_bytes
            file = self._room.insist(partial(_open, self._made / part.path, is_new=is_new))
        try:
            if part.length:
                self.bucket.read(part.stored, part.start, part.length, _FileSink(file, part.start, self), stop)
            if is_new:
                self._room.wrote(part.length)
        finally:
            os.close(file)

    def write(self, file: int, chunk: bytes, offset: int) -> None:
        """Write it whole."""
        with self._volume.writing(self._total_bytes):
            self._room.write(file, chunk, offset)

    def _reserve(self, path: Path, size_bytes: int) -> None:
        file = self._room.insist(partial(_open, path, is_new=True))
        try:
            self._room.insist(partial(os.posix_fallocate, file, 0, size_bytes))
            self._room.wrote(size_bytes)
        finally:
            os.close(file)


class _FileSink:
    """Writes what comes from its offset on."""

    def __init__(self, file: int, start: int, pull: _Pull) -> None:
        self._file = file
        self._offset = start
        self._pull = pull

    def __call__(self, chunk: bytes) -> None:
        self._pull.write(self._file, chunk, self._offset)
        self._offset += len(chunk)


def _open(path: Path, *, is_new: bool) -> int:
    """To write. What is new must not be there: a file with a second name elsewhere is not ours to change. Raises OSError."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else 0)
    file = os.open(path, flags, FILE_MODE)
    if is_new:
        try:
            os.fchmod(file, FILE_MODE)  # whatever our umask is
        except BaseException:
            os.close(file)
            path.unlink()  # whoever tries again finds nothing in the way
            raise
    return file


def _spans(stored: StoredObject, part_bytes: int) -> list[tuple[int, int]]:
    size_bytes = stored.size_bytes
    if size_bytes <= part_bytes or not (stored.is_divisible and stored.is_versioned):
        return [(0, size_bytes)]
    return [(start, min(part_bytes, size_bytes - start)) for start in range(0, size_bytes, part_bytes)]
