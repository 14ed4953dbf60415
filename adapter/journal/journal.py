"""
The journal of this process: takes notes at once, and has one thread write them.

Theory of operation. Notes wait in a table, one for each id; a task gives the whole table to the thread, which writes
it in one go. So a volume that is slow makes the notes fewer, and one that hangs holds up the callers of `written`
alone. When the file can neither be appended to nor written anew there shall be none: what was noted counts as written
then, since no later process can read anything older. The task tries again after a pause, with all that is known.
"""

from __future__ import annotations

import asyncio
import math
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import structlog

from adapter.digests import SALT_BYTES, Digests
from adapter.journal.file import MAX_ENTRIES, JournalFile, JournalProblem, NoJournal, OtherBoot, read
from adapter.journal.lines import Entry, Key, head_line, key_of, line_of
from adapter.model import Crashes, Record
from adapter.volume.boot import boot_id, boot_seconds
from adapter.waits import doubling
from adapter.workers import Threads

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
END_SECONDS = 1.0
"""Longest wait for the thread at the end: a volume that hangs must not keep the process."""

log = structlog.stdlib.get_logger(__name__)


def _unlink(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


class Journal:
    """
    As `ports.Journal`. Call `open` first, `close` last; what is noted without an event loop is written by `close`.
    """

    def __init__(
        self,
        path: Path,
        *,
        discard: Callable[[Path], None] = _unlink,
        boot: Callable[[], str] = boot_id,
        now: Callable[[], float] = boot_seconds,
    ) -> None:
        """
        Args:
            path: of its file.
            discard: takes a file, or whatever lies in its place, out of sight.
            boot: which boot of the kernel this is.
            now: seconds since then.
        """
        self._path = path
        self._discard = discard
        self._boot = boot
        self.now = now
        self.digests = Digests(secrets.token_bytes(SALT_BYTES))
        self.records: dict[str, Record] = {}
        self.crashes: dict[str, Crashes] = {}
        self._thread: Threads | None = None
        self._writing: asyncio.Task[None] | None = None
        self._pending: dict[Key, Entry | None] = {}
        self._noted = 0
        """Notes taken."""
        self._settled = -1.0
        """
        Of these, notes that are in the file, or that no file contradicts; -1 before the file is begun, infinite while
        there is none.
        """
        self._has_settled = asyncio.Event()
        """Set when more are, then replaced."""
        self._is_full = False

    def open(self) -> None:
        """
        Read what an earlier process has left, and begin a file of our own that holds the same. Blocks.

        Raises:
            StartError: the process cannot have another thread.
        """
        salt, entries = self._left()
        self.digests = Digests(salt)
        for entry in entries.values():
            self._table(entry)[key_of(entry)[1]] = entry
        lines = {key: line_of(entry) for key, entry in entries.items()}
        self._file = JournalFile(self._path, head_line(self._boot(), salt), lines, self._discard)
        self._thread = Threads("journal", 1)
        self._write_soon()

    def note(self, entry: Record | Crashes) -> None:
        """As `ports.Journal`."""
        key = key_of(entry)
        if key[1] not in self._table(entry) and len(self.records) + len(self.crashes) >= MAX_ENTRIES:
            if not self._is_full:
                self._is_full = True
                log.warning("journal.full", entries=MAX_ENTRIES)
            return
        self._table(entry)[key[1]] = entry
        self._take(key, entry)

    def forget(self, entry: Record | Crashes) -> None:
        """As `ports.Journal`."""
        key = key_of(entry)
        if self._table(entry).pop(key[1], None) is not None:
            self._take(key, None)

    async def written(self) -> None:
        """As `ports.Journal`."""
        self._write_soon()
        noted = self._noted
        while self._thread is not None and self._settled < noted:
            await self._has_settled.wait()

    def close(self) -> None:
        """Take no more notes; those that were taken are written, unless the volume hangs."""
        thread, self._thread = self._thread, None
        if thread is not None:
            if self._writing is not None:
                self._writing.cancel()
            self._has_settled.set()
            with suppress(TimeoutError):
                thread.submit(self._write, self._pending).result(END_SECONDS)
                self._file.close()
            thread.shutdown()

    def _left(self) -> tuple[bytes, dict[Key, Entry]]:
        """Salt and entries of the file that is there."""
        try:
            found = read(self._path, self._boot())
        except NoJournal:
            pass
        except JournalProblem as problem:
            tell = log.info if isinstance(problem, OtherBoot) else log.warning
            tell("journal.ignored", path=str(self._path), cause=str(problem))
            self._discard(self._path)
        else:
            return found.salt, found.entries
        return secrets.token_bytes(SALT_BYTES), {}

    def _table(self, entry: Entry) -> dict[str, Any]:
        return self.records if isinstance(entry, Record) else self.crashes

    def _take(self, key: Key, entry: Entry | None) -> None:
        if self._thread is not None:
            self._pending.pop(key, None)  # what was noted last is written last
            self._pending[key] = entry
            self._noted += 1
            self._write_soon()

    def _write_soon(self) -> None:
        if self._thread is not None and self._settled < self._noted and (self._writing is None or self._writing.done()):
            with suppress(RuntimeError):  # no event loop
                self._writing = asyncio.get_running_loop().create_task(self._write_all(self._thread), name="journal")

    async def _write_all(self, thread: Threads) -> None:
        """Until all is in the file."""
        pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        is_dropped = False
        while is_dropped or self._settled < self._noted:
            batch, self._pending, number = self._pending, {}, self._noted
            self._settled = min(self._settled, number)
            problem = await asyncio.wrap_future(thread.submit(self._write, batch))
            if problem is None:
                self._settled = number
                if is_dropped:
                    log.info("journal.begun_again", path=str(self._path))
            else:
                self._settled = math.inf
                self._pending = {**batch, **self._pending}
                if not is_dropped:
                    log.warning("journal.dropped", path=str(self._path), cause=problem)
            has_settled, self._has_settled = self._has_settled, asyncio.Event()
            has_settled.set()
            if is_dropped := problem is not None:
                await asyncio.sleep(next(pauses))

    def _write(self, batch: Mapping[Key, Entry | None]) -> str | None:
        """In the thread. Returns why there is no file now."""
        try:
            self._file.write([(key, None if entry is None else line_of(entry)) for key, entry in batch.items()])
        except Exception as error:  # noqa: BLE001 - callers that wait are woken, whatever happens here
            self._file.drop()
            return error.strerror or str(error) if isinstance(error, OSError) else repr(error)
        return None
