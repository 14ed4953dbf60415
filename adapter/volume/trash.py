"""
How things leave our folders: out of sight by a rename into the trash, then deleted.

What cannot be deleted (a root Triton's files) is counted, and is tried again, where its name is given to nothing else: in the adapter's
own folders. Of the repository's the caller is told, and tries again. Nothing is deleted on another mount than the volume's: each writer
of the volume could have put a link in the place of a folder, and it would lead to what others have mounted beside it. All calls block,
from any thread.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import threading
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import structlog

from adapter.errors import AdapterError, VolumeFailed
from adapter.telemetry.metrics import LEFTOVERS
from adapter.volume.trees import mount_of, own_bytes

if TYPE_CHECKING:
    from adapter.volume.volume import Volume

RETRY_SECONDS = 60.0
AT_ONCE = 64
"""Most leftovers that are tried again in one go."""
_STAYS = (errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.EACCES, errno.EPERM)
"""Of a rename: what cannot move for such a reason is deleted where it is."""

_log = structlog.stdlib.get_logger(__name__)


class Trash:
    """The folder of what goes, and the way there."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._left: dict[Path, int] = {}
        """What could not be deleted, with its bytes; what was tried last comes last."""
        self._going: dict[Path, int] = {}
        """What is being deleted, with its bytes."""
        self._changed = threading.Condition()
        self._tidy_at = 0.0

    def size_bytes(self) -> int:
        """Of leftovers, and of what is being deleted. Files that are also elsewhere are not counted."""
        with self._changed:
            return sum(self._left.values()) + sum(self._going.values())

    def settled(self, seconds: float) -> bool:
        """Wait, at most so long, for what is being deleted now. Returns whether any of it has gone."""
        with self._changed:
            before = set(self._going)
            self._changed.wait_for(lambda: not before & set(self._going), seconds)
            return not before <= set(self._going)

    def discard(self, path: Path, freed_bytes: int | None = None) -> OSError | AdapterError | None:
        """
        Take a file or directory out of sight at once, then delete it as far as permitted; an absent path is fine.

        Args:
            path: what goes.
            freed_bytes: what that gives back, where the caller knows. What is staged is counted by its reservation.

        Returns:
            Why the disk keeps the path as it was, or None.
        """
        if not os.path.lexists(path):
            return None
        gone = path
        try:
            self._volume.restore()
            gone = path.rename(self._volume.trash_dir / secrets.token_hex(8))
        except (OSError, AdapterError) as error:
            is_disk = error.errno not in _STAYS if isinstance(error, OSError) else isinstance(error, VolumeFailed)
            if is_disk and not self._is_own(path):  # half of it would be worse than all of it
                _log.warning("volume.leftover_kept", path=str(path), cause=str(error))
                return error
            _log.debug("volume.rename_failed", path=str(path), error=str(error))
        if freed_bytes is None and path.parent == self._volume.staging_dir:
            freed_bytes = 0
        if self._is_deleted(gone, freed_bytes):
            self.tidy()
        else:
            _log.warning("volume.leftover_kept", path=str(gone))
        return None

    def tidy(self) -> None:
        """Delete what could not be deleted before, if it is time for another try."""
        with self._changed:
            if not self._left or time.monotonic() < self._tidy_at:
                return
            self._tidy_at = time.monotonic() + RETRY_SECONDS
            paths = list(self._left)[:AT_ONCE]
        for path in paths:
            if self._is_deleted(path):
                _log.info("volume.leftover_deleted", path=str(path))

    def clear(self) -> None:
        """Delete what an earlier process has left in staging and trash. Raises OSError: a folder cannot be read."""
        entries = [entry for folder in (self._volume.staging_dir, self._volume.trash_dir) for entry in folder.iterdir()]
        if left := sum(not self._is_deleted(entry) for entry in entries):
            _log.warning("volume.leftovers_kept", count=left, folder=str(self._volume.cache_dir))

    def _is_own(self, path: Path) -> bool:
        """It lies in a folder of the adapter's own, where no name is given twice."""
        return path.parent in self._volume.own_dirs

    def _is_deleted(self, path: Path, freed_bytes: int | None = None) -> bool:
        """Delete it, as far as permitted, in the very folder that has the path now; nothing where that lies on another mount."""
        going_bytes, is_ours = own_bytes([path]) if freed_bytes is None else freed_bytes, True
        with self._changed:
            self._left.pop(path, None)
            self._going[path] = going_bytes
        with suppress(OSError, RecursionError), ExitStack() as stack:  # directories in directories, made to be kept
            parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, parent)
            is_ours = self._volume.mount in (None, mount_of(parent))
            if not is_ours:
                _log.warning("volume.not_deleted", path=str(path), cause="a link leads to it, out of the volume")
            elif stat.S_ISDIR(os.lstat(path.name, dir_fd=parent).st_mode):
                shutil.rmtree(path.name, ignore_errors=True, dir_fd=parent)
            else:
                os.unlink(path.name, dir_fd=parent)
        is_left, left_bytes = os.path.lexists(path), own_bytes([path])
        with self._changed:
            self._going.pop(path, None)
            if is_left and is_ours and self._is_own(path):
                self._left[path] = left_bytes
            LEFTOVERS.set(len(self._left))
            self._changed.notify_all()
        return not is_left
