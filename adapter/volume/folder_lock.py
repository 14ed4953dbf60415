"""A file in a folder that one process at a time holds; the kernel lets go of it when the process ends, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from adapter.volume.trees import mount_of

_MODE = 0o644


class FolderLock:
    """One lock file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: int | None = None

    def take(self) -> None:
        """
        Make the file if need be, and hold it instead of an earlier one.

        Raises:
            BlockingIOError: another process holds it.
            OSError: it cannot be made or held.
        """
        file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise
        self.release()
        self._file = file

    @property
    def mount(self) -> str | None:
        """Where the file lies that we hold, as `mount_of`."""
        return None if self._file is None else mount_of(self._file)

    def release(self) -> None:
        """Let another process hold it. The file stays."""
        if self._file is not None:
            os.close(self._file)
            self._file = None

    @property
    def is_in_place(self) -> bool:
        """Whether the file in the folder is the one that we hold. Raises OSError: the folder cannot be looked at."""
        held = self._file  # `release` may come meanwhile
        try:
            ours = None if held is None else os.fstat(held)
        except OSError:
            return False
        try:
            return ours is not None and os.path.samestat(ours, self.path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            return False
