"""
Who reads files that are not ours to copy: a few threads for each volume.

A volume claim is a network volume that can hang like any store, but nothing wakes a thread that hangs in one. So a read is
left behind when its caller gives up: it only reads, and nothing waits for its thread. A volume whose threads all hang answers
later callers soon, and serves again as soon as one of its threads comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import structlog

from adapter.errors import SourceUnavailable
from adapter.waits import Waits
from adapter.workers import Stop, Workers, retrieve

T = TypeVar("T")

THREADS = 2
"""Of each claim, or folder of a front."""
OWN_THREADS = 4
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
        """When it was asked for, until a thread begins it."""

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
        self._threads = Workers(name, threads)
        self._reads: set[_Read] = set()
        """Those that are in a thread."""
        self._is_silent = False

    async def run(self, waits: Waits, work: Callable[[Stop], T]) -> T:
        """
        Run the work in a thread; what is waited for is noted.

        Cancelled, it ends at once; the thread is left behind, and stops at the next step that it makes.

        Raises:
            SourceUnavailable: `work` has met an OSError; the time is up; all threads are known to hang.
            whatever else `work` raises.
        """
        read = _Read(waits.clock)

        def begin() -> T:
            read.began = read.last_step = waits.clock()
            self._reads.add(read)
            wait.what = self.holder
            wait.progressed()
            return work(read)

        with waits.on(f"a free thread of {self.holder} (all read for others)") as wait:
            begun = self._threads.submit(begin)
            reading = asyncio.wrap_future(begun)
            reading.add_done_callback(partial(self._ended, read))
            try:
                while not reading.done():
                    if (trouble := self._trouble(read, waits)) is not None:
                        raise trouble
                    await asyncio.wait({reading}, timeout=min(waits.left_seconds(), _TICK_SECONDS))
            finally:
                read.set()
                begun.cancel()
            try:
                return reading.result()
            except OSError as error:  # a driver that died, a server that does not know its own files any more
                raise SourceUnavailable(f"{self.holder} cannot be read: {error.strerror or error}") from error

    def close(self) -> None:
        """Take no more work; does not wait for what runs."""
        self._threads.close()

    def _trouble(self, read: _Read, waits: Waits) -> SourceUnavailable | None:
        """Why a call waits no longer: for a thread, or for its read."""
        now, is_over, words = waits.clock(), waits.left_seconds() <= 0, ""
        waited, silent = now - read.began, [now - each.last_step for each in self._reads.copy()]
        if read in self._reads:
            words = f"nothing has come from it for {now - read.last_step:.1f} s, after {waited:.1f} s in all" if is_over else ""
        elif len(silent) == self._count and min(silent) >= SILENT_SECONDS and (is_over or waited >= SOON_SECONDS):
            words = f"all {self._count} threads that may read it hang, the first for {max(silent):.0f} s"
        elif is_over:
            return SourceUnavailable(f"{self.holder} is busy: its threads have read for others for {waited:.1f} s")
        if not words:
            return None
        if not self._is_silent:
            self._is_silent = True
            _log.warning("claim.silent", claim=self.holder, cause=words)
        return SourceUnavailable(f"{self.holder} does not answer: {words}")

    def _ended(self, read: _Read, reading: asyncio.Future[T]) -> None:
        """The thread is free again, if it had begun."""
        if self._is_silent and read in self._reads:
            self._is_silent = False
            _log.info("claim.back", claim=self.holder)
        self._reads.discard(read)
        retrieve(reading)
