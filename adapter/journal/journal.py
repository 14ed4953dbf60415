"""
The journal of this process: takes notes at once, and has one thread write them into a file of its own.

Theory of operation. Notes wait in a table, one for each id; a task gives the whole table to the thread, which writes
it in one go. So a volume that is slow makes the notes fewer, and one that hangs holds up the callers of `written`
alone. When the file can neither be appended to nor written anew there shall be none: what was noted counts as written
then, since no later process can read anything older. The task tries again after a pause, with all that is known.

Lines are appended, and all is written anew when the file has grown too long, or is not as we left it. A new file
becomes visible by a rename, so a reader finds a whole one at any moment. Nothing is fsynced: pages outlive any death of
a process, and another boot of the kernel is told by the first line.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from adapter.digests import SALT_BYTES, Digests
from adapter.journal import file as lines
from adapter.journal.file import Entry, Found, JournalProblem, Key, NoJournal, OtherBoot, key_of, line_of
from adapter.volume.boot import boot_id, boot_seconds
from adapter.waits import doubling
from adapter.workers import Threads

MODE = 0o600
"""Its salt and what it tells are no one else's business."""
SLACK_BYTES = 64 * 1024
"""A file may become twice as long as it began, and so much longer."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
END_SECONDS = 1.0
"""Longest wait for the thread at the end: a volume that hangs must not keep the process."""

log = structlog.stdlib.get_logger(__name__)


class Journal:
    """As `ports.Journal`. Call `close` at the end; what is noted without an event loop is written by it."""

    def __init__(self, path: Path, *, discard: Callable[[Path], object], boot: str | None = None) -> None:
        """
        Read what an earlier process has left, and begin a file of our own that holds the same. Blocks.

        Args:
            path: of its file.
            discard: takes a file, or whatever lies in its place, out of sight; an absent one is fine. Does not raise.
            boot: which boot of the kernel this is.

        Raises:
            StartError: the process cannot have another thread.
        """
        self._path = path
        self._new_path = path.with_name(f"{path.name}.new")
        self._discard = discard
        self._boot = boot or boot_id()
        self._known = self._left()
        self.records, self.crashes, self.sizes = self._known.records, self._known.crashes, self._known.sizes
        self.digests = Digests(self._known.salt)
        self.now = boot_seconds
        self._descriptor = -1
        """Of the file that this process has begun; so are the next two. Used by the thread."""
        self._size_bytes = self._most_bytes = 0
        self._thread: Threads | None = Threads("journal", 1)
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
        self._write_soon()

    def note(self, entry: Entry) -> None:
        """As `ports.Journal`."""
        if not self._take(key_of(entry), entry):
            log.warning("journal.full", entries=lines.MAX_ENTRIES)

    def forget(self, entry: Entry) -> None:
        """As `ports.Journal`."""
        self._take(key_of(entry), None)

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
                self._close_file()
            thread.shutdown()

    def _left(self) -> Found:
        """What the file that is there says, if it can be believed."""
        try:
            return lines.read(self._path, self._boot)
        except NoJournal:
            pass
        except JournalProblem as problem:
            tell = log.info if isinstance(problem, OtherBoot) else log.warning
            tell("journal.ignored", path=str(self._path), cause=str(problem))
            self._discard(self._path)
        return Found(secrets.token_bytes(SALT_BYTES))

    def _take(self, key: Key, entry: Entry | None) -> bool:
        is_taken = self._known.put(key, entry)
        if is_taken and self._thread is not None:
            self._pending[key] = entry
            self._noted += 1
            self._write_soon()
        return is_taken

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
            self._settled = number if problem is None else math.inf
            self._has_settled.set()
            self._has_settled = asyncio.Event()
            if problem is None and is_dropped:
                log.info("journal.begun_again", path=str(self._path))
            elif problem is not None and not is_dropped:
                log.warning("journal.dropped", path=str(self._path), cause=problem)
            if is_dropped := problem is not None:
                await asyncio.sleep(next(pauses))

    def _write(self, batch: Mapping[Key, Entry | None]) -> str | None:
        """In the thread. Returns why there is no file now."""
        try:
            added = b"".join(lines.gone_line(key) if entry is None else line_of(entry) for key, entry in batch.items())
            if self._can_take(len(added)):
                _write(self._descriptor, added)
                self._size_bytes += len(added)
            else:
                self._begin()
        except Exception as error:  # noqa: BLE001 - callers that wait are woken, whatever happens here
            self._drop()
            return error.strerror or str(error) if isinstance(error, OSError) else repr(error)
        return None

    def _can_take(self, more_bytes: int) -> bool:
        """Whether the file under our name is still the one that we hold, as we left it, and not too long."""
        with suppress(OSError):
            named, held = self._path.lstat(), os.fstat(self._descriptor)
            is_ours = os.path.samestat(named, held) and held.st_size == self._size_bytes
            return is_ours and self._size_bytes + more_bytes <= self._most_bytes
        return False

    def _begin(self) -> None:
        """Another file, with all that is known; more may be noted meanwhile."""
        entries: list[Entry] = [*self.records.copy().values(), *self.crashes.copy().values(), *self.sizes.copy().values()]
        content = b"".join((lines.head_line(self._boot, self._known.salt), *map(line_of, entries)))
        self._discard(self._new_path)
        descriptor = os.open(self._new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
        try:
            os.fchmod(descriptor, MODE)
            _write(descriptor, content)
            if self._path.is_dir() and not self._path.is_symlink():
                self._discard(self._path)
            self._new_path.rename(self._path)
        except BaseException:
            os.close(descriptor)
            raise
        self._close_file()
        self._descriptor, self._size_bytes = descriptor, len(content)
        self._most_bytes = min(2 * len(content) + SLACK_BYTES, lines.MAX_FILE_BYTES)

    def _drop(self) -> None:
        """Have no file, rather than one that is not true."""
        for path in (self._path, self._new_path):
            with suppress(OSError):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # also where the name cannot be deleted
            os.ftruncate(self._descriptor, 0)
        self._close_file()

    def _close_file(self) -> None:
        with suppress(OSError):  # there may be none
            os.close(self._descriptor)
        self._descriptor = -1


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
