"""
Who reads files that are not ours to copy: threads for our own volume, and two threads for each volume claim.

A claim is a network volume that can hang like any store, but nothing wakes a thread that hangs in one. So a read of a claim is
left behind when its caller gives up: it only reads, and nothing waits for its thread. A claim whose threads all hang answers
later callers soon, and serves again as soon as one of its threads comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import structlog

from adapter.errors import AdapterError, InvalidRequest, SourceUnavailable, StartError, VolumeFailed
from adapter.waits import Waits
from adapter.workers import Stop, Threads, Workers, retrieve

T = TypeVar("T")

THREADS = 2
"""Of each claim."""
SILENT_SECONDS = 10.0
"""A read that has made no step for so long hangs, like a store that is silent for so long."""
SOON_SECONDS = 1.0
"""So long a call waits for a claim whose threads are known to hang."""
_TICK_SECONDS = 0.25
"""How often a call that waits looks whether its time is up: that may change meanwhile."""

_log = structlog.stdlib.get_logger(__name__)


class Reads(Protocol):
    """Threads for the files of one volume."""

    @property
    def holder(self) -> str:
        """Of the files, in words."""
        ...

    async def run(self, waits: Waits, work: Callable[[Stop], T]) -> T:
        """
        Run the work in a thread; what is waited for is noted.

        Raises:
            SourceUnavailable, VolumeFailed: `work` has met an OSError.
            whatever else `work` raises.
        """
        ...


class OwnReads:
    """The volume that is ours too: without it nothing works, so its reads are waited for."""

    holder = "the model volume"

    def __init__(self, looks: Workers) -> None:
        self._looks = looks

    async def run(self, waits: Waits, work: Callable[[Stop], T]) -> T:
        """As `Reads`. Cancelled, it ends when the thread has ended."""
        with waits.on(self.holder), _in_words(self.holder, VolumeFailed):
            return await self._looks.run(work)


class _Read(Stop):
    """One read. By looking whether it is still wanted before each step, it tells that it makes steps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self.last_step = clock()

    def check(self) -> None:
        super().check()
        self.last_step = self._clock()


class ClaimReads:
    """One claim."""

    def __init__(self, name: str, *, holder: str = "") -> None:
        """
        `holder` says in words what is read, where that is no claim.

        Raises:
            StartError: the process cannot have the threads; none is left.
        """
        self.holder = holder or f"the volume claim {name!r}"
        self._threads = Threads(f"claim-{name}", THREADS)
        self._free = asyncio.Semaphore(THREADS)
        self._reads: set[_Read] = set()
        self._is_silent = False

    async def run(self, waits: Waits, work: Callable[[Stop], T]) -> T:
        """
        As `Reads`. Cancelled, it ends at once; the thread is left behind, and stops at the next step that it makes.

        Raises:
            SourceUnavailable: it does not answer, and the time is up, or all its threads are known to hang.
        """
        with waits.on(f"a free thread of {self.holder} (both read for others)") as wait:
            await self._acquired(waits)
            wait.what = self.holder
            wait.progressed()
            return await self._outcome(work, waits)

    def close(self) -> None:
        """Take no more work; does not wait for what runs."""
        self._threads.shutdown()

    async def _acquired(self, waits: Waits) -> None:
        """Returns when a thread is free. It is held until the read has ended in it."""
        acquiring, began = asyncio.ensure_future(self._free.acquire()), waits.clock()
        try:
            while not acquiring.done():
                now = waits.clock()
                if (words := self._hang(now)) and now - began >= SOON_SECONDS:
                    raise self._silent(words)
                if waits.left_seconds() <= 0:
                    raise (
                        self._silent(words)
                        if words
                        else SourceUnavailable(f"{self.holder} is busy: its threads have read for others for {now - began:.1f} s")
                    )
                await _ticked(acquiring, waits)
        except BaseException:
            if not acquiring.cancel():
                self._free.release()
            raise

    async def _outcome(self, work: Callable[[Stop], T], waits: Waits) -> T:
        read, began = _Read(waits.clock), waits.clock()
        try:
            reading = asyncio.wrap_future(self._threads.submit(work, read))
        except BaseException:
            self._free.release()
            raise
        self._reads.add(read)
        reading.add_done_callback(partial(self._ended, read))
        try:
            while not reading.done():
                if waits.left_seconds() <= 0:
                    now = waits.clock()
                    silent = now - read.last_step
                    if silent < 1:
                        raise SourceUnavailable(f"{self.holder} is too slow: {now - began:.1f} s were not enough to read the model")
                    raise self._silent(f"nothing has come from it for {silent:.1f} s")
                await _ticked(reading, waits)
        finally:
            read.set()
        with _in_words(self.holder, SourceUnavailable):
            return reading.result()

    def _hang(self, now: float) -> str | None:
        """In words, since when all its threads hang; None while one does not."""
        silent = [now - read.last_step for read in self._reads]
        if len(silent) < THREADS or min(silent) < SILENT_SECONDS:
            return None
        return f"all {THREADS} threads that may read it hang, the first for {max(silent):.0f} s"

    def _silent(self, words: str) -> SourceUnavailable:
        if not self._is_silent:
            self._is_silent = True
            _log.warning("claim.silent", claim=self.holder, cause=words)
        return SourceUnavailable(f"{self.holder} does not answer: {words}")

    def _ended(self, read: _Read, reading: asyncio.Future[T]) -> None:
        """The thread is free again."""
        self._reads.discard(read)
        self._free.release()
        if self._is_silent:
            self._is_silent = False
            _log.info("claim.back", claim=self.holder)
        retrieve(reading)


class ClaimsReads:
    """All claims that were used, each with threads of its own."""

    def __init__(self, mounts: Path, looks: Workers) -> None:
        """`mounts` is PVC_MOUNTS_DIR; `looks` are threads for our own volume, which list it."""
        self.mounts = mounts
        self._looks = looks
        self._known: dict[str, ClaimReads] = {}

    async def of(self, name: str) -> ClaimReads:
        """
        The threads of a claim, made when it is used first.

        Only what is mounted gets any: a request may give any name.

        Raises:
            InvalidRequest: nothing of this name is mounted.
            SourceUnavailable: the process cannot have the threads now.
        """
        if name in self._known:
            return self._known[name]
        if name not in await self._looks.run(lambda _: _names(self.mounts)):
            raise not_mounted(self.mounts, name)
        if name not in self._known:
            try:
                self._known[name] = ClaimReads(name)
            except StartError as error:
                raise SourceUnavailable(f"the volume claim {name!r} cannot be read now: {error}") from error
        return self._known[name]

    def close(self) -> None:
        """Take no more work; does not wait for what runs."""
        for reads in self._known.values():
            reads.close()


def not_mounted(mounts: Path, name: str) -> InvalidRequest:
    """Nothing, or no folder, has the name of the claim."""
    return InvalidRequest(
        f"the volume claim {name!r} is not mounted: expected it at {mounts / name} (PVC_MOUNTS_DIR) in the adapter's container "
        "and in Triton's"
    )


@contextmanager
def _in_words(holder: str, failure: type[AdapterError]) -> Iterator[None]:
    """The file system has trouble of its own: a driver that died, a server that does not know its own files any more."""
    try:
        yield
    except OSError as error:
        raise failure(f"{holder} cannot be read: {error.strerror or error}") from error


async def _ticked(future: asyncio.Future[T], waits: Waits) -> None:
    """Wait for it, and at most until it is time to look again."""
    await asyncio.wait({future}, timeout=min(waits.left_seconds(), _TICK_SECONDS))


def _names(mounts: Path) -> set[str]:
    """Entries of the folder; none of them is looked at, since a claim may hang."""
    try:
        return {entry.name for entry in mounts.iterdir()}
    except OSError:
        return set()
