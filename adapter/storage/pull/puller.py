"""
Bytes from a bucket into a directory on our volume.

Invariants: when a pull has failed or was cancelled, nothing writes any more; memory is bounded by the connections, whatever the
size. Each connection takes one part, or some small files, at a time and then queues again at its endpoint, so a big pull does not
starve a small one. Failures of the volume keep its words, and idle artifacts are deleted before a write fails on a full one.
Knows no store.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import NamedTuple
from weakref import WeakValueDictionary

from adapter.storage.bucket import Bucket, StoredObject
from adapter.storage.cache.cache import Cache
from adapter.storage.net.messages import SMALL_BYTES
from adapter.storage.pull.staged import Run, Whole
from adapter.telemetry.metrics import PULLED_BYTES, PULLED_FILES
from adapter.units import MIB
from adapter.volume.space import Reservation
from adapter.volume.volume import Volume, open_file
from adapter.waits import Waits
from adapter.workers import Stop, Workers

PART_BYTES = 16 * MIB
FIRST_CONNECTIONS = 4
"""Of a pull. A large file has as many parts at least: with fewer, a small model gets a small share beside a large one."""
LEAST_FILES = 4
"""For each connection: with fewer, it costs more than it brings."""
MOST_FILES = 32
"""That are asked for one after the other without the event loop."""
FILES_A_SECOND = 1000
"""That come over any number of connections at once, about: many small files need as many connections as come in one latency."""
_WINDOW_SECONDS = 0.1
_LEAST_GAIN = 1.4
_FILE_WORTH_BYTES = 256 * 1024
"""A request moves the pull on like these bytes: among small files, bytes alone would tell little."""


class EndpointQueues:
    """
    Turns of requests to endpoints: how many may be under way at a time, first come first served.

    A silent endpoint holds each request until the caller's time is up. So all endpoints together may have twice as many as one:
    what one that is dead cannot take is left to the others.
    """

    def __init__(self, each: int) -> None:
        """`each`: requests of one endpoint at a time."""
        self._each = each
        self._all = asyncio.Semaphore(2 * each)
        self._of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By endpoint. One that no request uses or waits for goes."""

    @asynccontextmanager
    async def turn(self, endpoint: str, waits: Waits) -> AsyncIterator[None]:
        """While inside, one request may be under way to this endpoint. Until there is a turn, that is what is waited for."""
        turns = self._of.setdefault(endpoint, asyncio.Semaphore(self._each))
        free = f"a free request to {endpoint} (all {self._each} wait for it)"
        free_of_all = f"a free request to storage (all {2 * self._each} wait for stores)"
        async with AsyncExitStack() as held:
            for semaphore, what in ((turns, free), (self._all, free_of_all)):
                with waits.on(what) if semaphore.locked() else nullcontext():
                    await held.enter_async_context(semaphore)
            yield


@dataclass(frozen=True, kw_only=True)
class Means:
    """What models in buckets are read, pulled and unpacked with."""

    volume: Volume
    cache: Cache
    asks: EndpointQueues
    """Listings and small reads."""
    pulls: EndpointQueues
    connections: int
    """That one pull may have at once."""
    part_bytes: int
    """Most that a request asks for. Files of at most a quarter of it come in one request."""
    files: Workers
    """Threads that work on the volume alone."""
    unpacks: Workers
    """Threads that unpack."""
    most_unpacked_bytes: int
    """Of one model."""


class Part(NamedTuple):
    """Bytes of one object."""

    path: str
    start: int
    length: int


@dataclass(eq=False)
class Pull:
    """One pull into a folder whose directories are there: its connections, as many as are of use, until nothing is left."""

    means: Means
    bucket: Bucket
    folder: Path
    objects: Mapping[str, StoredObject]
    """Path in the folder → object, from a checked listing."""
    reserved: Reservation
    """Grows by their bytes."""
    waits: Waits
    """Of those who wait."""
    cut: dict[str, Whole] = field(default_factory=dict)
    """Files that come in parts."""
    open: set[int] = field(default_factory=set)
    """Files that are being written."""
    parts: deque[Part] = field(default_factory=deque)
    """That are left; the largest files come first, so that none of them is the last one."""
    total_bytes: int = 0
    moved_bytes: int = 0
    """Of all parts, on the volume."""
    ended: int = 0
    """Parts that have come."""
    most: int = 0
    """Connections, as the next two; those that are too many end with their part."""
    wanted: int = 0
    at_work: int = 0

    async def run(self) -> None:
        """
        Until all is there. A pull that fails leaves some of the files.

        Raises:
            SourceError: the first one that any connection met; the others are stopped because of it.
            DiskFull: with the numbers; nothing idle is left to delete.
        """
        files = self.means.files
        self.total_bytes = sum(stored.size_bytes for stored in self.objects.values())
        self.waits.bytes_of_pull = lambda: (self.moved_bytes, self.total_bytes)
        try:
            await files.run(self._prepare)
            self.most = min(self.means.connections, len(self.parts))
            async with asyncio.TaskGroup() as group:
                self._grow_to(group, FIRST_CONNECTIONS)
                if self.most > FIRST_CONNECTIONS:
                    group.create_task(self._watch(group))
        except BaseException as failure:
            await files.run(self._close, is_stopped=False)
            if isinstance(failure, BaseExceptionGroup):
                raise failure.exceptions[0] from None
            raise
        finally:
            self.waits.bytes_of_pull = None
            PULLED_BYTES.labels(self.bucket.kind).inc(self.moved_bytes)
        PULLED_FILES.labels(self.bucket.kind).inc(len(self.objects))

    def writing(self) -> AbstractContextManager[None]:
        """As `Volume.writing`, of all these files."""
        return self.means.volume.writing(self.total_bytes)

    def _prepare(self, stop: Stop) -> None:
        """Make the files that are empty, or come in parts. Raises DiskFull, AdapterError."""
        part_bytes = self.means.part_bytes
        with self.writing():
            self.reserved.grow(self.total_bytes)
            for path, stored in sorted(self.objects.items(), key=lambda item: -item[1].size_bytes):
                stop.check()
                size = length = stored.size_bytes
                if size > part_bytes // FIRST_CONNECTIONS and stored.is_divisible and stored.is_versioned:
                    length = min(part_bytes, -(-size // FIRST_CONNECTIONS))
                    self.cut[path] = Whole(stored, self.bucket.place)
                if path in self.cut or not size:
                    os.close(self.reserved.insist(partial(open_file, f"{self.folder}/{path}", is_new=True)))
                self.parts += [Part(path, start, min(length, size - start)) for start in range(0, size, length or 1)]

    def _close(self, _stop: Stop) -> None:
        """Let go of what is open. No read goes on any more."""
        for file in self.open:
            with suppress(OSError):  # what has failed before is the cause
                os.close(file)

    def _grow_to(self, group: asyncio.TaskGroup, count: int) -> None:
        self.wanted = max(self.wanted, min(count, self.most))
        while self.at_work < self.wanted:
            self.at_work += 1
            group.create_task(self._work(group))

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        """
        Twice as many connections as long as that moves more: where latency, or a bound of each connection, is the limit.

        The last ones, which brought too little, end: a model beside this one has the larger share.
        """
        before = rate_before = 0
        while self.at_work < self.most and self.parts:
            await asyncio.sleep(_WINDOW_SECONDS)
            now = self.moved_bytes + self.ended * _FILE_WORTH_BYTES
            rate, before = now - before, now
            if not rate:
                continue
            if rate < rate_before * _LEAST_GAIN:
                self.wanted //= 2
                return
            rate_before = rate
            if self.parts:
                self._grow_to(group, 2 * self.at_work)

    async def _work(self, group: asyncio.TaskGroup) -> None:
        clock = asyncio.get_running_loop().time
        while self.parts and self.at_work <= self.wanted:
            async with self.means.pulls.turn(self.bucket.endpoint, self.waits):
                began, taken, is_first = clock(), self._taken(), not self.ended
                if not taken:
                    return
                await self.bucket.read([PartFile(self, part) for part in taken])
                if is_first and taken[0].length <= SMALL_BYTES:
                    self._grow_to(group, min(int((clock() - began) * FILES_A_SECOND), len(self.parts) // LEAST_FILES))
        self.at_work -= 1

    def _taken(self) -> list[Part]:
        """One part, or some small files: as many as leave each connection some for another turn."""
        count = min(MOST_FILES, max(1, len(self.parts) // (2 * self.at_work))) if self.ended else 1
        taken: list[Part] = []
        while self.parts and (not taken or (len(taken) < count and taken[0].length <= SMALL_BYTES)):
            taken.append(self.parts.popleft())  # the largest come first
        return taken


class PartFile(Run):
    """
    Writes what comes of a part to where it belongs. The file is opened when the first bytes come.

    Raises DiskFull and AdapterError when the volume takes none, and SourceUnavailable from `end`, as `Whole.ran`.
    """

    def __init__(self, pull: Pull, part: Part) -> None:
        whole = pull.cut.get(part.path)
        super().__init__(whole or Whole(pull.objects[part.path], pull.bucket.place), part.start, part.length)
        self.written_bytes = part.length
        self._pull = pull
        self._open = partial(open_file, f"{pull.folder}/{part.path}", is_new=whole is None)
        self._file = -1

    def keep(self, chunk: bytes | memoryview) -> None:
        """As `Read`."""
        pull = self._pull
        with pull.writing():
            if self._file < 0:
                self._file = pull.reserved.insist(self._open)
                pull.open.add(self._file)
            pull.reserved.write(self._file, chunk, self.next)
        pull.moved_bytes += len(chunk)

    def end(self) -> None:
        """As `Read`. A file system of a network may say only now that it is full."""
        pull = self._pull
        pull.open.discard(self._file)
        with pull.writing():
            os.close(self._file)
        pull.ended += 1
        super().end()
