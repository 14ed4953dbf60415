"""
Who reads files that are not ours to copy: a few threads for each volume.

A volume claim is a network volume that can hang like any store, but nothing wakes a thread that hangs in one. So a read is
left behind when its caller gives up: it only reads, and nothing waits for its thread. A volume whose threads all hang answers
later callers soon, and serves again as soon as one of its threads comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TypeVar

import structlog

from adapter.errors import InvalidRequest, SourceUnavailable, StartError
from adapter.waits import Waits
from adapter.workers import Stop, Threads, retrieve

T = TypeVar("T")

THREADS = 2
"""Of each claim, or folder of a front."""
_OWN_THREADS = 4
"""Of our own volume."""
SILENT_SECONDS = 10.0
"""A read that has made no step for so long hangs, like a store that is silent for so long."""
SOON_SECONDS = 1.0
"""So long a call waits for a volume whose threads are known to hang."""
_TICK_SECONDS = 0.25
"""How often a call that waits looks whether its time is up: that may change meanwhile."""

_log = structlog.stdlib.get_logger(__name__)


class _Read(Stop):
    """One read. By looking whether it is still wanted before each step, it tells that it makes steps."""

    def __init__(self, clock: Callable[[], float]) -> None:
        super().__init__()
        self._clock = clock
        self.began = self.last_step = clock()

    def check(self) -> None:
        super().check()
        self.last_step = self._clock()


class VolumeReads:
    """One volume."""

    def __init__(self, name: str, holder: str, threads: int = THREADS) -> None:
        """
        Args:
            name: of the threads.
            holder: of the files, in words.
            threads: how many read it at a time.

        Raises:
            StartError: the process cannot have the threads; none is left.
        """
        self.holder = holder
        self._count = threads
        self._threads = Threads(name, threads)
        self._free = asyncio.Semaphore(threads)
        self._reads: set[_Read] = set()
        self._is_silent = False

    async def run(self, waits: Waits, work: Callable[[Stop], T]) -> T:
        """
        Run the work in a thread; what is waited for is noted.

        Cancelled, it ends at once; the thread is left behind, and stops at the next step that it makes.

        Raises:
            SourceUnavailable: `work` has met an OSError; the time is up; all threads are known to hang.
            whatever else `work` raises.
        """
        with waits.on(f"a free thread of {self.holder} (all read for others)") as wait:
            await self._acquired(waits)
            wait.what = self.holder
            wait.progressed()
            read = _Read(waits.clock)
            reading = asyncio.wrap_future(self._threads.submit(work, read))
            self._reads.add(read)
            reading.add_done_callback(partial(self._ended, read))
            try:
                await _done(reading, waits, lambda: self._trouble(read, waits))
            finally:
                read.set()
            try:
                return reading.result()
            except OSError as error:  # a driver that died, a server that does not know its own files any more
                raise SourceUnavailable(f"{self.holder} cannot be read: {error.strerror or error}") from error

    def close(self) -> None:
        """Take no more work; does not wait for what runs."""
        self._threads.shutdown()

    async def _acquired(self, waits: Waits) -> None:
        """Returns when a thread is free. It is held until the read has ended in it."""
        acquiring, began = asyncio.ensure_future(self._free.acquire()), waits.clock()
        try:
            await _done(acquiring, waits, lambda: self._lack(began, waits))
        except BaseException:
            if not acquiring.cancel():
                self._free.release()
            raise

    def _lack(self, began: float, waits: Waits) -> SourceUnavailable | None:
        """Why a call waits no longer for a thread."""
        now = waits.clock()
        is_over, waited = waits.left_seconds() <= 0, now - began
        silent = [now - read.last_step for read in self._reads]
        if len(silent) == self._count and min(silent) >= SILENT_SECONDS and (is_over or waited >= SOON_SECONDS):
            return self._silent(f"all {self._count} threads that may read it hang, the first for {max(silent):.0f} s")
        return SourceUnavailable(f"{self.holder} is busy: its threads have read for others for {waited:.1f} s") if is_over else None

    def _trouble(self, read: _Read, waits: Waits) -> SourceUnavailable | None:
        """Why a call waits no longer for its read."""
        if waits.left_seconds() > 0:
            return None
        now = waits.clock()
        silent = now - read.last_step
        if silent < 1:
            return SourceUnavailable(f"{self.holder} is too slow: {now - read.began:.1f} s were not enough to read the model")
        return self._silent(f"nothing has come from it for {silent:.1f} s")

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


class MountedReads:
    """All volumes that were used, each with threads of its own."""

    def __init__(self, mounts: Path) -> None:
        """
        Args:
            mounts: PVC_MOUNTS_DIR.

        Raises:
            StartError: the process cannot have threads for the model volume.
        """
        self.mounts = mounts
        self.own = VolumeReads("own", "the model volume", _OWN_THREADS)
        self._known: dict[str, VolumeReads] = {}

    async def of_claim(self, name: str, waits: Waits) -> VolumeReads:
        """
        The threads of a claim, made when it is used first.

        Only what is mounted gets any: a request may give any name.

        Raises:
            InvalidRequest: nothing of this name is mounted.
            SourceUnavailable: the process cannot have the threads now.
        """
        holder = f"the volume claim {name!r}"
        if holder not in self._known and name not in await self.own.run(waits, lambda _: _names(self.mounts)):
            raise InvalidRequest(
                f"{holder} is not mounted: expected it at {self.mounts / name} (PVC_MOUNTS_DIR) in the adapter's container and in Triton's"
            )
        return self._of(holder, name)

    def of_folder(self, folder: Path) -> VolumeReads:
        """As `of_claim`, for a folder that the settings name."""
        return self._of(f"the folder {folder}", folder.name)

    def close(self) -> None:
        """Take no more work; does not wait for what runs."""
        for reads in (self.own, *self._known.values()):
            reads.close()

    def _of(self, holder: str, name: str) -> VolumeReads:
        if holder not in self._known:
            try:
                self._known[holder] = VolumeReads(f"claim-{name}", holder)
            except StartError as error:
                raise SourceUnavailable(f"{holder} cannot be read now: {error}") from error
        return self._known[holder]


async def _done(future: asyncio.Future[T], waits: Waits, failure: Callable[[], SourceUnavailable | None]) -> None:
    """Wait for it. Raises what `failure` gives, which is asked again and again."""
    while not future.done():
        if (found := failure()) is not None:
            raise found
        await asyncio.wait({future}, timeout=min(waits.left_seconds(), _TICK_SECONDS))


def _names(mounts: Path) -> list[str]:
    """Entries of the folder; none of them is looked at, since a claim may hang."""
    with suppress(OSError):
        return [path.name for path in mounts.iterdir()]
    return []
