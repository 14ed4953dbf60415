"""
How things leave our folders: out of sight by a rename, then deleted; what a failed disk keeps stays whole, and goes later.

A name that had to leave and could not may be wanted again, or given to something else: both are told here (`keep`,
`move_in`), so that a later try takes away only what had to leave. All calls block, from any thread; only `move_in` raises.
"""

from __future__ import annotations

import errno
import os
import secrets
import threading
import time
from pathlib import Path

import structlog

from adapter.errors import AdapterError, VolumeFailed
from adapter.volume.folders import Folders
from adapter.volume.trash import Trash

RETRY_SECONDS = 5.0
"""Between two tries to delete what a disk that failed has kept from being deleted."""
_STAYS = (errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.EACCES, errno.EPERM)
"""Of a rename: another place would not help, so what cannot move is deleted where it is."""

_log = structlog.stdlib.get_logger(__name__)


class Leaving:
    """Between the folders and the trash."""

    def __init__(self, folders: Folders, trash: Trash) -> None:
        self._folders = folders
        self._trash = trash
        self._moving = threading.Lock()
        """Around what gives a name in a folder of ours to something else than what had to leave and could not."""
        self._tidying = threading.Lock()
        self._tidy_at = 0.0

    def move_in(self, staged: Path, target: Path) -> None:
        """Give what is staged a name in a folder of ours, whatever had to leave from there before and could not. Raises OSError."""
        with self._moving:
            staged.rename(target)
            self._trash.forget(target)

    def keep(self, path: Path) -> None:
        """It had to leave, and could not; now it is wanted again."""
        with self._moving:
            self._trash.forget(path)

    def discard(self, path: Path, *, is_counted_elsewhere: bool = False) -> None:
        """As `Volume.discard`."""
        if not os.path.lexists(path):
            return
        gone = self._moved_out(path)
        if gone is None:  # half of it would be worse than all of it
            self._trash.put_off(path)
        elif not self._trash.delete(gone, is_counted_elsewhere=is_counted_elsewhere or path.parent == self._folders.staging_dir):
            _log.warning("volume.leftover_kept", path=str(gone))
        else:
            self.tidy()

    def tidy(self) -> None:
        """Delete what the disk has kept from being deleted, at most every `RETRY_SECONDS`."""
        if not self._trash.has_put_off or time.monotonic() < self._tidy_at or not self._tidying.acquire(blocking=False):
            return
        try:
            self._folders.restore()
            for path in self._trash.put_off_paths():
                gone = self._moved_again(path)
                if gone is not None and self._trash.delete(gone):
                    _log.info("volume.leftover_deleted", path=str(path))
        except (OSError, AdapterError) as error:
            _log.debug("volume.not_tidied", cause=str(error))
        finally:
            self._tidy_at = time.monotonic() + RETRY_SECONDS
            self._tidying.release()

    def _moved_out(self, path: Path) -> Path | None:
        """Where it is now: the trash, staging, or where it was if it can be moved to neither. None: the disk does not let it go."""
        try:
            self._folders.restore()
        except (OSError, AdapterError) as error:
            _log.warning("volume.rename_failed", path=str(path), error=str(error))
            return None if isinstance(error, OSError | VolumeFailed) else path
        for gone in (self._trash.new_place(), self._folders.staging_dir / secrets.token_hex(8)):
            try:
                path.rename(gone)
            except OSError as error:
                _log.warning("volume.rename_failed", path=str(path), error=str(error))
                if error.errno in _STAYS:
                    return path
            else:
                self._trash.forget(path)
                return gone
        return path if path.parent in (self._folders.staging_dir, self._folders.trash_dir) else None

    def _moved_again(self, path: Path) -> Path | None:
        """As `_moved_out`, of what has been put off and is not wanted again."""
        if path.parent == self._folders.trash_dir:
            return path
        gone = self._trash.new_place()
        with self._moving:
            if not self._trash.has(path):
                return None
            try:
                path.rename(gone)
            except FileNotFoundError:
                self._trash.forget(path)
                return None
            except OSError:
                return None
            self._trash.forget(path)
        return gone
