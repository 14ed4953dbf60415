"""
The journal's file as this process writes it: lines are appended, and all is written anew when the file has grown too long.

A new file becomes visible by a rename, so whoever reads at any moment finds a whole one. Nothing is fsynced: pages outlive
any death of a process, and another boot of the kernel is told by the first line. One thread uses it.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from adapter.journal.lines import Key, gone_line
from adapter.journal.reading import MAX_FILE_BYTES, MODE

SLACK_BYTES = 64 * 1024
"""A file may be twice as long as what it holds, and so much longer."""


class JournalFile:
    """A file with one line for each key that counts. Every method blocks; a call that raises leaves `drop` to the caller."""

    def __init__(self, path: Path, head: bytes, lines: dict[Key, bytes], discard: Callable[[Path], None]) -> None:
        """
        Args:
            path: of the file.
            head: its first line.
            lines: what it shall hold at first.
            discard: takes what is in the way out of sight; does not raise.
        """
        self._path = path
        self._new_path = path.with_name(f"{path.name}.new")
        self._head = head
        self._lines = lines
        self._held_bytes = len(head) + sum(map(len, lines.values()))
        self._discard = discard
        self._descriptor: int | None = None
        self._size_bytes = 0

    def resume(self, size_bytes: int) -> None:
        """Append to the file that is there, which holds our lines and has so many bytes; where that fails, `write` makes a new one."""
        self._discard(self._new_path)
        with suppress(OSError):
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            self._size_bytes = size_bytes

    def write(self, batch: Sequence[tuple[Key, bytes | None]]) -> None:
        """
        Hold other lines from now on: for each key the line that counts (None: none any more).

        Raises:
            OSError: nothing is certain about the file; `drop` it. The lines are held all the same.
        """
        for key, line in batch:
            self._held_bytes -= len(self._lines.pop(key, b""))
            if line is not None:
                self._lines[key] = line
                self._held_bytes += len(line)
        added = b"".join(gone_line(key) if line is None else line for key, line in batch)
        if self._can_take(len(added)):
            try:
                _write(self._opened(), added)
            except OSError:  # there may be room for a shorter file
                with suppress(OSError):
                    os.ftruncate(self._opened(), self._size_bytes)
            else:
                self._size_bytes += len(added)
                return
        self._rewrite()

    def drop(self) -> None:
        """Have no file, rather than one that is not true. Does not raise."""
        for path in (self._path, self._new_path):
            with suppress(OSError):
                path.unlink(missing_ok=True)
        if self._descriptor is not None:
            with suppress(OSError):  # also where the name cannot be deleted
                os.ftruncate(self._descriptor, 0)
        self.close()

    def close(self) -> None:
        """Write no more."""
        if self._descriptor is not None:
            with suppress(OSError):
                os.close(self._descriptor)
            self._descriptor = None

    def _opened(self) -> int:
        if self._descriptor is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        return self._descriptor

    def _can_take(self, more_bytes: int) -> bool:
        """Whether the file under our name is still the one that we hold, as we left it, and not too long."""
        if self._descriptor is None or self._size_bytes + more_bytes > min(2 * self._held_bytes + SLACK_BYTES, MAX_FILE_BYTES):
            return False
        try:
            named, held = self._path.lstat(), os.fstat(self._descriptor)
        except OSError:
            return False
        return os.path.samestat(named, held) and stat.S_ISREG(held.st_mode) and held.st_size == self._size_bytes

    def _rewrite(self) -> None:
        if self._held_bytes > MAX_FILE_BYTES:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG))
        self._discard(self._new_path)
        descriptor = os.open(self._new_path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, MODE)
        try:
            os.fchmod(descriptor, MODE)
            _write(descriptor, b"".join((self._head, *self._lines.values())))
            if self._path.is_dir() and not self._path.is_symlink():
                self._discard(self._path)
            self._new_path.rename(self._path)
        except BaseException:
            os.close(descriptor)
            raise
        self.close()
        self._descriptor, self._size_bytes = descriptor, self._held_bytes


def _write(descriptor: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]
