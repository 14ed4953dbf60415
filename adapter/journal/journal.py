"""
The journal of this process: takes notes at once, and has one thread write them.

Theory of operation. Notes wait in a table, one for each id; the thread takes the whole table and writes it in one go, so a
volume that is slow makes the notes fewer, and one that hangs holds up the callers of `written` alone. When the
file can neither be appended to nor written anew there shall be none: what was noted counts as written then, since no later
process can read anything older. The thread tries again after a pause, with all that is known.
"""

from __future__ import annotations

import asyncio
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from adapter.digests import SALT_BYTES, Digests
from adapter.errors import StartError
from adapter.journal.file import MAX_ENTRIES, JournalFile, JournalProblem, NoJournal, OtherBoot, read
from adapter.journal.lines import Entry, Key, head_line, key_of, line_of
from adapter.model import Crashes, Record
from adapter.volume.boot import boot_id, boot_seconds
from adapter.waits import doubling

FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
END_SECONDS = 1.0
"""Longest wait for the thread at the end: a volume that hangs must not keep the process."""

log = structlog.stdlib.get_logger(__name__)
_Waiter = tuple[int, asyncio.AbstractEventLoop, asyncio.Future[None]]
"""The number of the last note that it waits for, and how to wake it."""


def _unlink(path: Path) -> None:
    with suppress(OSError):
        path.unlink(missing_ok=True)


class Journal:
    """As `ports.Journal`. Call `open` first, `close` last."""

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
        self._thread: threading.Thread | None = None
        self._changed = threading.Condition()
        """Around all that follows. Held for moments, never while anything is written."""
        self._pending: dict[Key, Entry | None] = {}
        self._noted = 0
        """Notes taken."""
        self._settled = 0
        """Of these, notes that are in the file, or that no file contradicts."""
        self._waiters: list[_Waiter] = []
        self._is_due = True
        """Whether the file is to be written although nothing new was noted."""
        self._is_writing = False
        self._is_dropped = False
        """There is no file; the thread tries again after a pause."""
        self._is_closed = False
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
            self._keep(entry)
        lines = {key: line_of(entry) for key, entry in entries.items()}
        file = JournalFile(self._path, head_line(self._boot(), salt), lines, self._discard)
        thread = threading.Thread(target=self._serve, args=(file,), name="journal", daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise StartError(f"the thread of the journal cannot start: {error} (is there a limit of processes?)") from error
        self._thread = thread

    def note(self, entry: Record | Crashes) -> None:
        """As `ports.Journal`."""
        known = self.records if isinstance(entry, Record) else self.crashes
        if key_of(entry)[1] not in known and len(self.records) + len(self.crashes) >= MAX_ENTRIES:
            if not self._is_full:
                self._is_full = True
                log.warning("journal.full", entries=MAX_ENTRIES)
            return
        self._keep(entry)
        self._take_note(key_of(entry), entry)

    def forget(self, entry: Record | Crashes) -> None:
        """As `ports.Journal`."""
        known = self.records if isinstance(entry, Record) else self.crashes
        if known.pop(key_of(entry)[1], None) is not None:
            self._take_note(key_of(entry), None)

    async def written(self) -> None:
        """As `ports.Journal`."""
        loop = asyncio.get_running_loop()
        with self._changed:
            if self._thread is None or self._settled >= self._noted:
                return
            settled = loop.create_future()
            self._waiters.append((self._noted, loop, settled))
        await settled

    def close(self) -> None:
        """Take no more notes; those that were taken are written, unless the volume hangs."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join(END_SECONDS)

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

    def _keep(self, entry: Entry) -> None:
        if isinstance(entry, Record):
            self.records[entry.model_id] = entry
        else:
            self.crashes[entry.digest] = entry

    def _take_note(self, key: Key, entry: Entry | None) -> None:
        with self._changed:
            if self._is_closed:
                return
            self._pending.pop(key, None)  # what was noted last is written last
            self._pending[key] = entry
            self._noted += 1
            if self._is_dropped and not self._is_writing:
                self._settled = self._noted
            self._changed.notify_all()

    def _serve(self, file: JournalFile) -> None:
        """The thread."""
        pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        pause, is_dropped = 0.0, False
        while (taken := self._taken(pause)) is not None:
            batch, number = taken
            try:
                file.write([(key, None if entry is None else line_of(entry)) for key, entry in batch.items()])
            except Exception as error:  # noqa: BLE001 - callers that wait are woken, whatever happens here
                file.drop()
                self._give_back(batch)
                if not is_dropped:
                    log.warning("journal.dropped", path=str(self._path), cause=_words(error))
                pause, is_dropped = next(pauses), True
            else:
                if is_dropped:
                    log.info("journal.begun_again", path=str(self._path))
                    pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
                pause, is_dropped = 0.0, False
            self._settle(number, is_dropped=is_dropped)
        file.close()
        self._settle(self._noted, is_dropped=True)

    def _taken(self, pause: float) -> tuple[dict[Key, Entry | None], int] | None:
        """The notes to write, and the number of the last one; None at the end."""
        with self._changed:
            if pause:
                self._changed.wait_for(lambda: self._is_closed, pause)
            self._changed.wait_for(lambda: self._pending or self._is_due or self._is_closed)
            if self._is_closed and (pause or not (self._pending or self._is_due)):
                return None
            batch, self._pending = self._pending, {}
            self._is_writing, self._is_due = True, False
            return batch, self._noted

    def _give_back(self, batch: dict[Key, Entry | None]) -> None:
        """What could not be written is tried again, except where something later was noted."""
        with self._changed:
            self._pending = {key: entry for key, entry in batch.items() if key not in self._pending} | self._pending

    def _settle(self, number: int, *, is_dropped: bool) -> None:
        with self._changed:
            self._is_writing, self._is_dropped, self._is_due = False, is_dropped, is_dropped
            self._settled = self._noted if is_dropped else number
            woken = [waiter for waiter in self._waiters if waiter[0] <= self._settled]
            self._waiters = [waiter for waiter in self._waiters if waiter[0] > self._settled]
        for _, loop, settled in woken:
            try:
                loop.call_soon_threadsafe(_wake, settled)
            except RuntimeError:  # that loop has ended, and so have its callers
                continue


def _wake(settled: asyncio.Future[None]) -> None:
    if not settled.done():
        settled.set_result(None)


def _words(error: Exception) -> str:
    return error.strerror or str(error) if isinstance(error, OSError) else repr(error)
