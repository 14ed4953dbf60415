"""
Bytes from a bucket into a directory on our volume.

Invariants: when a pull has failed or was cancelled, nothing writes any more; memory is bounded by the connections, whatever the
size. Each connection takes one part, or some small files, at a time and then queues again at its endpoint, so a big pull does not
starve a small one. Knows no store.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from weakref import WeakValueDictionary

from adapter.storage.bucket import Bucket
from adapter.storage.cache.cache import Cache
from adapter.storage.net.messages import SMALL_BYTES
from adapter.storage.pull.staged import FIRST_CONNECTIONS, Part, PartSizes, StagedFiles
from adapter.telemetry.metrics import PULLED_BYTES, PULLED_FILES
from adapter.volume.volume import Volume
from adapter.waits import Waits
from adapter.workers import Workers

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
    sizes: PartSizes
    files: Workers
    """Threads that work on the volume alone."""
    unpacks: Workers
    """Threads that unpack."""
    most_unpacked_bytes: int
    """Of one model."""


class Pull:
    """One pull: its connections, as many as are of use, until nothing is left."""

    def __init__(self, means: Means, bucket: Bucket, files: StagedFiles, waits: Waits) -> None:
        """`files`: where to, from a checked listing; `waits`: of those who wait for it."""
        self._means = means
        self._bucket = bucket
        self._files = files
        self._waits = waits
        self._turn = partial(means.pulls.turn, bucket.endpoint, waits)
        self._parts: deque[Part] = deque()
        self._most = self._wanted = self._at_work = 0
        """Connections; those that are too many end with their part."""
        self._has_first = False
        """The first part has come."""

    async def run(self) -> None:
        """
        Until all is there. A pull that fails leaves some of the files.

        Raises:
            SourceError: the first one that any connection met; the others are stopped because of it.
            DiskFull: with the numbers; nothing that is idle is left to give way.
        """
        means, files = self._means, self._files
        expected = sum(stored.size_bytes for stored in files.objects.values())
        self._waits.bytes_of_pull = lambda: (files.moved_bytes, expected)
        try:
            self._parts = await means.files.run(partial(files.prepare, means.sizes))
            self._most = min(means.connections, len(self._parts))
            async with asyncio.TaskGroup() as group:
                self._grow_to(group, FIRST_CONNECTIONS)
                if self._most > FIRST_CONNECTIONS:
                    group.create_task(self._watch(group))
        except BaseException as failure:
            await means.files.run_to_end(files.close)
            if isinstance(failure, BaseExceptionGroup):
                raise failure.exceptions[0] from None
            raise
        finally:
            self._waits.bytes_of_pull = None
            PULLED_BYTES.labels(self._bucket.kind).inc(files.moved_bytes)
        PULLED_FILES.labels(self._bucket.kind).inc(len(files.objects))

    def _grow_to(self, group: asyncio.TaskGroup, count: int) -> None:
        self._wanted = max(self._wanted, min(count, self._most))
        while self._at_work < self._wanted:
            self._at_work += 1
            group.create_task(self._work(group))

    async def _watch(self, group: asyncio.TaskGroup) -> None:
        """
        Twice as many connections as long as that moves more: where latency, or a bound of each connection, is the limit.

        The last ones, which brought too little, end: a model beside this one has the larger share.
        """
        before = rate_before = 0
        while self._at_work < self._most and self._parts:
            await asyncio.sleep(_WINDOW_SECONDS)
            now = self._files.moved_bytes + self._files.ended * _FILE_WORTH_BYTES
            rate, before = now - before, now
            if not rate:
                continue
            if rate < rate_before * _LEAST_GAIN:
                self._wanted //= 2
                return
            rate_before = rate
            if self._parts:
                self._grow_to(group, 2 * self._at_work)

    async def _work(self, group: asyncio.TaskGroup) -> None:
        clock = asyncio.get_running_loop().time
        while self._parts and self._at_work <= self._wanted:
            async with self._turn():
                began, taken = clock(), self._taken()
                if not taken:
                    return
                await self._bucket.read([self._files.read(part) for part in taken])
                if not self._has_first and taken[0].length <= SMALL_BYTES:
                    self._grow_to(group, min(int((clock() - began) * FILES_A_SECOND), len(self._parts) // LEAST_FILES))
                self._has_first = True
        self._at_work -= 1

    def _taken(self) -> list[Part]:
        """One part, or some small files: as many as leave each connection some for another turn."""
        count = min(MOST_FILES, max(1, len(self._parts) // (2 * self._at_work))) if self._has_first else 1
        taken: list[Part] = []
        while self._parts and (not taken or (len(taken) < count and taken[0].length <= SMALL_BYTES)):
            taken.append(self._parts.popleft())  # the largest come first
        return taken
