"""
What left our folders and is being deleted, or could not be.

Things come here by rename, so they are out of sight at once. Deleting takes time, and a root Triton's files in
directories of its own cannot be deleted by another user: such leftovers stay, are counted, and are tried again at start.
Nothing is deleted on another mount than the volume's: whoever can write the volume could have put a link in the place of
a folder, and it would lead to what others have mounted beside it. All calls block, from any thread; none raises.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
import threading
from pathlib import Path

import structlog

from adapter.telemetry.metrics import LEFTOVERS
from adapter.trees import mount_of, own_bytes

_log = structlog.stdlib.get_logger(__name__)


class Trash:
    """The folder of what goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home: str | None = None
        """The volume's mount, as `mount_of`; None: not known yet, so anything may be deleted."""
        self._left: dict[Path, int] = {}
        """What could not be deleted, with its bytes."""
        self._going: dict[Path, int] = {}
        """What is being deleted, with its bytes."""
        self._changed = threading.Condition()

    def size_bytes(self) -> int:
        """Of leftovers, and of what is being deleted; files that are also elsewhere not counted."""
        with self._changed:
            return sum(self._left.values()) + sum(self._going.values())

    def settled(self, seconds: float) -> bool:
        """Wait, at most so long, for what is being deleted now. Returns whether any of it has gone."""
        with self._changed:
            before = set(self._going)
            if not before:
                return False
            self._changed.wait_for(lambda: not before & set(self._going), seconds)
            return not before <= set(self._going)

    def new_place(self) -> Path:
        """A name in the folder that nothing has."""
        return self.folder / secrets.token_hex(8)

    def delete(self, path: Path, *, is_counted: bool = True) -> bool:
        """
        Delete it, as far as permitted; absent is fine. Returns whether it is gone.

        Args:
            path: in the folder, or elsewhere if it could not be moved.
            is_counted: False while somebody else counts its bytes until it is gone.
        """
        try:
            parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            return not os.path.lexists(path)
        try:
            if self.home is not None and mount_of(parent) != self.home:
                _log.warning("volume.not_deleted", path=str(path), cause="a link leads to it, out of the volume")
                return False
            return self._delete(path, parent, is_counted=is_counted)
        finally:
            os.close(parent)

    def _delete(self, path: Path, parent: int, *, is_counted: bool) -> bool:
        size_bytes = own_bytes([path]) if is_counted else 0
        with self._changed:
            self._going[path] = size_bytes
        try:
            _delete(path.name, parent)
        finally:
            left_bytes = own_bytes([path]) if os.path.lexists(path) else None
            with self._changed:
                del self._going[path]
                if left_bytes is None:
                    self._left.pop(path, None)
                else:
                    self._left[path] = left_bytes
                LEFTOVERS.set(len(self._left))
                self._changed.notify_all()
        return left_bytes is None

    def clear(self) -> None:
        """Delete what lies in the folder, also of an earlier process. Raises OSError: the folder cannot be read."""
        with self._changed:
            self._left.clear()
            LEFTOVERS.set(0)
        left = sum(not self.delete(entry) for entry in list(self.folder.iterdir()))
        if left:
            _log.warning("volume.leftovers_kept", count=left, folder=str(self.folder))


def _delete(name: str, parent: int) -> None:
    """In this very folder, whatever has its path meanwhile."""
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            shutil.rmtree(name, ignore_errors=True, dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)
    except RecursionError:  # directories in directories, made by somebody who wants to be kept
        _log.warning("volume.too_deep", name=repr(name))
    except FileNotFoundError:
        return
    except OSError as error:
        _log.debug("volume.unlink_failed", name=repr(name), error=error.strerror)
