"""
What each model id holds, kept on the volume across processes: implements `ports.Journal`.

Theory of operation. A task gives the lines that are new to a thread, which appends them. The first write of a process, and
one to a file that has grown too long or is not as we left it, is a new file with all that is known, renamed: so a reader
finds a whole file at any moment, and whatever file lies in its place is replaced. A volume that is slow makes the writes
fewer, and one that hangs holds up the callers of `written` alone. When no file can be written there shall be none: what was
noted counts as written then, since no later process can read anything older. The task tries again after a pause.
Nothing is fsynced: pages outlive any death of a process, and another boot of the kernel is told by the first line.
"""

from __future__ import annotations

import asyncio
import math
import os
import secrets
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import structlog

from adapter.journal.file import (
    FORMAT,
    MAX_ENTRIES,
    MAX_FILE_BYTES,
    Entry,
    Found,
    Head,
    JournalProblem,
    Key,
    NoJournal,
    gone_line,
    key_of,
    line_of,
    read,
)
from adapter.records import SALT_BYTES, Digests, Sized
from adapter.volume.boot import boot_id, boot_seconds
from adapter.waits import doubling
from adapter.workers import Threads

MODE = 0o600
"""Its salt and what it tells are no one else's business."""
MOST_SIZES = 2_000
"""Sizes of contents that are kept: the one noted longest ago goes for a new one."""
FIRST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 30.0
SLACK_BYTES = 64 * 1024
"""A file may become twice as long as it began, and so much longer."""
END_SECONDS = 1.0
"""Longest wait for the thread at the end: a volume that hangs must not keep the process."""

log = structlog.stdlib.get_logger(__name__)


class Journal:
    """As `ports.Journal`. Call `close` at the end; what is noted without an event loop is written by it."""

    def __init__(self, path: Path, *, discard: Callable[[Path], object], boot: str | None = None) -> None:
        """
        Read what an earlier process has left; the first file of our own holds the same. Blocks.

        Args:
            path: of its file.
            discard: takes a file, or whatever lies in its place, out of sight; an absent one is fine. Does not raise.
            boot: which boot of the kernel this is.

        Raises:
            StartError: the process cannot have another thread.
        """
        self._path = path
        self._discard = discard
        boot = boot or boot_id()
        try:
            self._known = read(path, boot)
        except JournalProblem as problem:
            self._known = Found(secrets.token_bytes(SALT_BYTES))
            if not isinstance(problem, NoJournal):
                log.warning("journal.ignored", path=str(path), cause=str(problem))
                discard(path)
        self.records, self.crashes, self.sizes = self._known.records, self._known.crashes, self._known.sizes
        self.needed = self._known.needed
        self.digests = Digests(self._known.salt)
        self.now = boot_seconds
        self._head = line_of(Head(FORMAT, boot, self._known.salt.hex()))
        self._thread: Threads | None = Threads("journal", 1)
        self._descriptor = -1
        """Of the file that this process has begun; so are the next two. Used by the thread."""
        self._size_bytes = self._most_bytes = 0
        self._writing: asyncio.Task[None] | None = None
        self._new: dict[Key, bytes] = {}
        """Lines that are not in the file, the last one of each key."""
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
        key = key_of(entry)
        if isinstance(entry, Sized) and key[1] not in self.sizes and len(self.sizes) >= MOST_SIZES:
            self.forget(next(iter(self.sizes.values())))
        if self._known.put(key, entry):
            self._take(key, line_of(entry))
        else:
            log.warning("journal.full", entries=MAX_ENTRIES)

    def forget(self, entry: Entry) -> None:
        """As `ports.Journal`."""
        if self._known.put(key := key_of(entry), None):
            self._take(key, gone_line(key))

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
                thread.submit(self._write, b"".join(self._new.values())).result(END_SECONDS)
                self._close_file()
            thread.shutdown()

    def _take(self, key: Key, line: bytes) -> None:
        self._new[key] = line
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
            added, self._new, number = b"".join(self._new.values()), {}, self._noted
            self._settled = min(self._settled, number)
            problem = await asyncio.wrap_future(thread.submit(self._write, added))
            self._settled = number if problem is None else math.inf
            self._has_settled.set()
            self._has_settled = asyncio.Event()
            if problem is None and is_dropped:
                log.info("journal.begun_again", path=str(self._path))
            elif problem is not None and not is_dropped:
                log.warning("journal.dropped", path=str(self._path), cause=problem)
            if is_dropped := problem is not None:
                await asyncio.sleep(next(pauses))

    def _write(self, added: bytes) -> str | None:
        """In the thread. Returns why there is no file now: better none than one that is not true."""
        new_path = self._path.with_name(f"{self._path.name}.new")
        try:
            if self._can_take(len(added)):
                _write_all(self._descriptor, added)
                self._size_bytes += len(added)
            else:
                self._begin(new_path)
        except Exception as error:  # noqa: BLE001 - callers that wait are woken, whatever happens here
            with suppress(OSError):  # also where the name cannot be deleted
                os.ftruncate(self._descriptor, 0)
            self._close_file()
            for path in (self._path, new_path):
                with suppress(OSError):
                    path.unlink(missing_ok=True)
            return error.strerror or str(error) if isinstance(error, OSError) else repr(error)
        return None

    def _can_take(self, more_bytes: int) -> bool:
        """Whether the file under our name is still the one that we hold, as we left it, and not too long."""
        with suppress(OSError):
            named, held = self._path.lstat(), os.fstat(self._descriptor)
            is_ours = os.path.samestat(named, held) and held.st_size == self._size_bytes
            return is_ours and self._size_bytes + more_bytes <= self._most_bytes
        return False

    def _begin(self, new_path: Path) -> None:
        """Another file, with all that is known; more may be noted meanwhile."""
        # each table as it is at one moment: nothing of Python runs in between
        known: list[Entry] = [*self.records.values(), *self.crashes.values(), *self.sizes.values(), *self.needed.values()]
        content = self._head + b"".join(map(line_of, known))
        self._discard(new_path)
        self._close_file()
        self._descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, MODE)
        os.fchmod(self._descriptor, MODE)
        _write_all(self._descriptor, content)
        new_path.rename(self._path)
        self._size_bytes, self._most_bytes = len(content), min(2 * len(content) + SLACK_BYTES, MAX_FILE_BYTES)

    def _close_file(self) -> None:
        with suppress(OSError):  # there may be none
            os.close(self._descriptor)
        self._descriptor = -1


def _write_all(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
