"""
The journal's file as somebody has left it, read as hostile input: bounded, regular files only, no links.

Reading takes nothing for granted but the kernel: another process may write, replace or delete the file meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from adapter.journal.lines import FORMAT, MAX_LINE_BYTES, Entry, Key, read_head, read_line
from adapter.model import Crashes, Record
from adapter.units import MIB

NAME = "journal.jsonl"
"""In the adapter's own folder."""
MODE = 0o600
"""Its salt and what it tells are nobody else's business."""
MAX_FILE_BYTES = 32 * MIB
MAX_ENTRIES = 20_000
"""Model ids and contents together. What comes after is not kept."""


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
    size_bytes: int
    is_whole: bool
    """False: a line was dropped, or others may read the file: it is better written anew than appended to."""

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
    What the file says, if it is of this boot of the kernel. Blocks.

    Raises:
        JournalProblem: nothing that can be believed.
    """
    try:
        with _opened(path) as file:
            return _read(file, boot_id)
    except FileNotFoundError:
        raise NoJournal("there is none") from None
    except OSError as error:
        words = "it is a link" if error.errno == errno.ELOOP else f"it cannot be read: {error.strerror}"
        raise JournalProblem(words) from error


def _opened(path: Path) -> BinaryIO:
    """Looks before it opens: opening a device may do anything, opening a pipe waits."""
    if not stat.S_ISREG(path.lstat().st_mode):
        raise JournalProblem("it is no regular file")
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    return os.fdopen(descriptor, "rb")


def _read(file: BinaryIO, boot_id: str) -> Found:
    state = os.fstat(file.fileno())
    if not stat.S_ISREG(state.st_mode):
        raise JournalProblem("it is no regular file")
    if state.st_size > MAX_FILE_BYTES:
        raise JournalProblem(f"it is larger than {MAX_FILE_BYTES // MIB} MiB")
    lines = _lines(file)
    head = read_head(next(lines, (b"", 0))[0])
    if head is None:
        raise JournalProblem("its first line is not a journal's")
    if head.format != FORMAT:
        raise JournalProblem(f"it has format {head.format}, and this adapter reads {FORMAT}")
    if head.boot_id != boot_id:
        raise OtherBoot("the machine has restarted since it was written")
    entries: dict[Key, Entry] = {}
    is_whole, size_bytes = stat.S_IMODE(state.st_mode) == MODE, file.tell()
    for line, end in lines:
        size_bytes = end
        said = read_line(line)
        if said is None:
            is_whole = False
            continue
        key, entry = said
        entries.pop(key, None)
        if entry is not None and len(entries) < MAX_ENTRIES:
            entries[key] = entry
        elif entry is not None:
            is_whole = False
    return Found(head.salt, entries, size_bytes, is_whole)


def _lines(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Lines, and where each one ends. One without an end is empty, and so is one that is too long; both are dropped by any reader."""
    end = 0
    while end < MAX_FILE_BYTES and (line := file.readline(MAX_LINE_BYTES)):
        end += len(line)
        is_short = line.endswith(b"\n")
        while line and not line.endswith(b"\n") and end < MAX_FILE_BYTES:
            line = file.readline(MAX_LINE_BYTES)
            end += len(line)
        yield (line if is_short else b""), end
