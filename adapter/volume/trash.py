"""
How things leave our folders: out of sight by a rename into the trash, then deleted.

What cannot be deleted (a root Triton's files, a disk that has failed) stays whole, is counted, and is tried again. The
exception is what lies in Triton's folder: its name may have another model by then, so its caller tries again. Nothing
is deleted on another mount than the volume's: each writer of the volume could have put a link in the place of a
folder, and it would lead to what others have mounted beside it. All calls block, from any thread.
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
_STAYS = (errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.EACCES, errno.EPERM)
"""Of a rename: what cannot move for such a reason is deleted where it is."""

_log = structlog.stdlib.get_logger(__name__)


class Trash:
    """The folder of what goes, and the way there."""

    def __init__(self, volume: Volume) -> None:
        self._volume = volume
        self._left: dict[Path, int] = {}
        """What could not be deleted, with its bytes."""
        self._lock = threading.Lock()
        self._tidy_at = 0.0

    def size_bytes(self) -> int:
        """Of leftovers, without files that are also elsewhere."""
        with self._lock:
            return sum(self._left.values())

    def discard(self, path: Path) -> OSError | AdapterError | None:
        """
        Take a file or directory out of sight at once, then delete it as far as permitted; an absent path is fine.

        Its caller counts its bytes until this returns.

        Returns:
            Why the disk keeps it as it was, or None.
        """
        self._note(path, None)
        if not os.path.lexists(path):
            return None
        gone = path
        try:
            gone = self._moved_out(path)
        except (OSError, AdapterError) as error:
            is_disk = error.errno not in _STAYS if isinstance(error, OSError) else isinstance(error, VolumeFailed)
            if is_disk and path.parent != self._volume.staging_dir:  # half of it would be worse than all of it
                self._note(path, own_bytes([path]))
                return error
        self._delete(gone)
        return None

    def tidy(self) -> None:
        """Delete what could not be deleted before, if it is time for another try."""
        with self._lock:
            if not self._left or time.monotonic() < self._tidy_at:
                return
            self._tidy_at = time.monotonic() + RETRY_SECONDS
            paths = list(self._left)
        for path in paths:
            self.discard(path)

    def clear(self) -> None:
        """Delete what lies in the folder, also of an earlier process. Raises OSError: the folder cannot be read."""
        for entry in list(self._volume.trash_dir.iterdir()):
            self.discard(entry)

    def _moved_out(self, path: Path) -> Path:
        """Where it is in the trash. Raises OSError, AdapterError: it is where it was."""
        trash = self._volume.trash_dir
        if path.parent == trash:
            return path
        gone = trash / secrets.token_hex(8)
        self._volume.restore()
        return path.rename(gone)

    def _delete(self, path: Path) -> None:
        """
        Delete it, as far as permitted, in the very folder that has the path now; nothing where that lies on another mount.

        What stays is left.
        """
        is_ours = True
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
        if is_ours and os.path.lexists(path):
            self._note(path, own_bytes([path]))

    def _note(self, path: Path, left_bytes: int | None) -> None:
        """It is left with these bytes; None: it is not, or another try begins."""
        if path.parent == self._volume.repository_dir:
            return
        with self._lock:
            self._left.pop(path, None)
            if left_bytes is not None:
                self._left[path] = left_bytes
                _log.warning("volume.leftover_kept", path=str(path))
            LEFTOVERS.set(len(self._left))
