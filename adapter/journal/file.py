"""
The journal's file: read as an earlier process, or anyone else, has left it; written by this process alone.

Reading is bounded, opens regular files only and follows no link: another process may write, replace or delete the
file meanwhile. This process begins a file of its own; lines are appended, and all is written anew when the file has
grown too long. A new file becomes visible by a rename, so a reader finds a whole one at any moment. Nothing is
fsynced: pages outlive any death of a process, and another boot of the kernel is told by the first line. Blocks.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from adapter.journal.lines import FORMAT, MAX_LINE_BYTES, Entry, Key, gone_line, read_head, read_line
from adapter.model import Crashes, Record
from adapter.units import MIB

NAME = "journal.jsonl"
"""In the adapter's own folder."""
MODE = 0o600
"""Its salt and what it tells are no one else's business."""
MAX_FILE_BYTES = 32 * MIB
MAX_ENTRIES = 20_000
"""Model ids and contents together. What comes after is not kept."""
SLACK_BYTES = 64 * 1024
"""A file may become twice as long as it began, and so much longer."""


class JournalProblem(Exception):
    """The file says nothing that can be believed; the text says why, for people."""


class NoJournal(JournalProblem):
    """There is no file."""


class OtherBoot(JournalProblem):
    """The machine has restarted since: the file may be older than what it tells of."""


@dataclass(frozen=True)
class Found:
    """What a file says."""

    salt: bytes
    entries: dict[Key, Entry]
    """In the order of their last lines."""

    @property
    def records(self) -> dict[str, Record]:
        """By model id."""
        return {entry.model_id: entry for entry in self.entries.values() if isinstance(entry, Record)}

    @property
    def crashes(self) -> dict[str, Crashes]:
        """By digest."""
        return {entry.digest: entry for entry in self.entries.values() if isinstance(entry, Crashes)}


def read(path: Path, boot_id: str) -> Found:
    """
    What the file says, if it is of this boot of the kernel.

    Raises:
        JournalProblem: nothing that can be believed.
    """
    try:
        _check(path.lstat())  # before it is opened: opening a device may do anything
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            _check(os.fstat(descriptor))
            return _read(file, boot_id)
    except FileNotFoundError:
        raise NoJournal("there is none") from None
    except OSError as error:
        words = "it is a link" if error.errno == errno.ELOOP else f"it cannot be read: {error.strerror}"
        raise JournalProblem(words) from error


def _check(state: os.stat_result) -> None:
    if not stat.S_ISREG(state.st_mode):
        raise JournalProblem("it is no regular file")
    if state.st_size > MAX_FILE_BYTES:
        raise JournalProblem(f"it is larger than {MAX_FILE_BYTES // MIB} MiB")


def _read(file: BinaryIO, boot_id: str) -> Found:
    lines = _lines(file)
    head = read_head(next(lines, b""))
    if head is None:
        raise JournalProblem("its first line is not a journal's")
    if head.format != FORMAT:
        raise JournalProblem(f"it has format {head.format}, and this adapter reads {FORMAT}")
    if head.boot_id != boot_id:
        raise OtherBoot("the machine has restarted since it was written")
    entries: dict[Key, Entry] = {}
    for said in filter(None, map(read_line, lines)):
        key, entry = said
        entries.pop(key, None)
        if entry is not None and len(entries) < MAX_ENTRIES:
            entries[key] = entry
    return Found(bytes.fromhex(head.salt), entries)


def _lines(file: BinaryIO) -> Iterator[bytes]:
    """Whole lines. One without an end, or that is too long, is left out."""
    is_start = True
    while file.tell() < MAX_FILE_BYTES and (line := file.readline(MAX_LINE_BYTES)):
        has_end = line.endswith(b"\n")
        if is_start and has_end:
            yield line
        is_start = has_end


class JournalFile:
    """A file with one line for each key that counts. A method that raises leaves `drop` to the caller."""

    def __init__(self, path: Path, head: bytes, lines: dict[Key, bytes], discard: Callable[[Path], None]) -> None:
        """
        Args:
            path: of the file.
            head: its first line.
            lines: what it holds at first.
            discard: takes what is in the way out of sight; does not raise.
        """
        self._path = path
        self._new_path = path.with_name(f"{path.name}.new")
        self._head = head
        self._lines = lines
        self._discard = discard
        self._descriptor = -1
        self._size_bytes = self._most_bytes = 0

    def write(self, batch: Sequence[tuple[Key, bytes | None]]) -> None:
        """
        Hold other lines from now on: for each key the line that counts (None: none any more).

        Raises:
            OSError: nothing is certain about the file; `drop` it. The lines are held all the same.
        """
        for key, line in batch:
            self._lines.pop(key, None)
            if line is not None:
                self._lines[key] = line
        added = b"".join(gone_line(key) if line is None else line for key, line in batch)
        if self._can_take(len(added)):
            try:
                _write(self._descriptor, added)
            except OSError:  # a shorter file may fit
                with suppress(OSError):
                    os.ftruncate(self._descriptor, self._size_bytes)
            else:
                self._size_bytes += len(added)
                return
        self._rewrite()

    def drop(self) -> None:
        """Have no file, rather than one that is not true. Does not raise."""
        for path in (self._path, self._new_path):
            with suppress(OSError):
                path.unlink(missing_ok=True)
        with suppress(OSError):  # also where the name cannot be deleted
            os.ftruncate(self._descriptor, 0)
        self.close()

    def close(self) -> None:
        """Write no more."""
        with suppress(OSError):  # there may be none
            os.close(self._descriptor)
        self._descriptor = -1

    def _can_take(self, more_bytes: int) -> bool:
        """Whether the file under our name is still the one that we hold, as we left it, and not too long."""
        if self._size_bytes + more_bytes > self._most_bytes:
            return False
        try:
            named, held = self._path.lstat(), os.fstat(self._descriptor)
        except OSError:
            return False
        return os.path.samestat(named, held) and held.st_size == self._size_bytes

    def _rewrite(self) -> None:
        content = b"".join((self._head, *self._lines.values()))
        if len(content) > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        self._discard(self._new_path)
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        descriptor = os.open(self._new_path, flags, MODE)
        try:
            os.fchmod(descriptor, MODE)
            _write(descriptor, content)
            if self._path.is_dir() and not self._path.is_symlink():
                self._discard(self._path)
            self._new_path.rename(self._path)
        except BaseException:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor, self._size_bytes = descriptor, len(content)
        self._most_bytes = min(2 * len(content) + SLACK_BYTES, MAX_FILE_BYTES)


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
