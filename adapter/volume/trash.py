"""
What left our folders and is being deleted, or could not be.

Things come here by rename, so they are out of sight at once. Deleting takes time, and a root Triton's files in
directories of its own cannot be deleted by another user: such leftovers stay, are counted, and are tried again at start.
Nothing is deleted on another mount than the volume's: each writer of the volume could have put a link in the place of
a folder, and it would lead to what others have mounted beside it. All calls block, from any thread; none raises.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
import threading
from itertools import islice
from pathlib import Path

import structlog

from adapter.telemetry.metrics import LEFTOVERS
from adapter.volume.trees import mount_of, own_bytes

AT_ONCE = 64
"""Most leftovers of a failed disk that are tried again in one go."""
_FINAL = (errno.ENOTEMPTY, errno.EEXIST)
"""A folder that is not empty because of what is in it: that has a reason of its own."""

_log = structlog.stdlib.get_logger(__name__)


class Trash:
    """The folder of what goes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home: str | None = None
        """The volume's mount, as `mount_of`; None: not known yet, so anything may be deleted."""
        self._left: dict[Path, int] = {}
        """What could not be deleted, with its bytes."""
        self._put_off: dict[Path, None] = {}
        """Of these, what the disk kept without a ban: tried again, in this order."""
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

    @property
    def has_put_off(self) -> bool:
        """Whether there is anything to try again."""
        return bool(self._put_off)

    def put_off_paths(self) -> list[Path]:
        """What to try again, a bounded number of them; those come last the next time."""
        with self._changed:
            paths = list(islice(self._put_off, AT_ONCE))
            for path in paths:
                self._put_off[path] = self._put_off.pop(path)
            return paths

    def put_off(self, path: Path) -> None:
        """It stays where it is for now, and is to be tried again. Does not raise."""
        self._leave(path, can_pass=True)

    def has(self, path: Path) -> bool:
        """Whether it has been put off."""
        with self._changed:
            return path in self._put_off

    def forget(self, path: Path) -> None:
        """What is called so now is not what could not be deleted."""
        with self._changed:
            self._put_off.pop(path, None)
            if self._left.pop(path, None) is not None:
                LEFTOVERS.set(len(self._left))

    def new_place(self) -> Path:
        """A name in the folder that nothing has."""
        return self.folder / secrets.token_hex(8)

    def delete(self, path: Path, *, is_counted_elsewhere: bool = False) -> bool:
        """
        Delete it, as far as permitted; absent is fine. Returns whether it is gone.

        Args:
            path: in the folder, or elsewhere if it could not be moved.
            is_counted_elsewhere: whether its bytes are counted by others until it is gone.
        """
        try:
            parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            if not os.path.lexists(path):
                return True
            self._leave(path, can_pass=_can_pass(error))
            return False
        try:
            if self.home is not None and mount_of(parent) != self.home:
                _log.warning("volume.not_deleted", path=str(path), cause="a link leads to it, out of the volume")
                return False
            return self._delete(path, parent, is_counted_elsewhere=is_counted_elsewhere)
        finally:
            os.close(parent)

    def _delete(self, path: Path, parent: int, *, is_counted_elsewhere: bool) -> bool:
        size_bytes = 0 if is_counted_elsewhere else own_bytes([path])
        with self._changed:
            self._going[path] = size_bytes
        failures: list[BaseException] = []
        try:
            _delete(path.name, parent, failures)
        finally:
            is_left = os.path.lexists(path)
            if is_left:
                self._leave(path, can_pass=any(map(_can_pass, failures)))
            else:
                self.forget(path)
            with self._changed:
                del self._going[path]
                self._changed.notify_all()
        return not is_left

    def _leave(self, path: Path, *, can_pass: bool) -> None:
        left_bytes = own_bytes([path])
        with self._changed:
            self._left[path] = left_bytes
            LEFTOVERS.set(len(self._left))
            self._put_off.pop(path, None)
            if can_pass:
                self._put_off[path] = None

    def clear(self) -> None:
        """Delete what lies in the folder, also of an earlier process. Raises OSError: the folder cannot be read."""
        with self._changed:
            self._left.clear()
            self._put_off.clear()
            LEFTOVERS.set(0)
        left = sum(not self.delete(entry) for entry in list(self.folder.iterdir()))
        if left:
            _log.warning("volume.leftovers_kept", count=left, folder=str(self.folder))


def _can_pass(failure: BaseException) -> bool:
    """Another user's files stay another user's; a disk may be mended."""
    return isinstance(failure, OSError) and not isinstance(failure, PermissionError | FileNotFoundError) and failure.errno not in _FINAL


def _delete(name: str, parent: int, failures: list[BaseException]) -> None:
    """In this very folder, whatever has its path meanwhile."""
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=parent).st_mode):
            shutil.rmtree(name, onerror=lambda _call, _path, failure: _note(failures, failure[1]), dir_fd=parent)
        else:
            os.unlink(name, dir_fd=parent)
    except RecursionError:  # directories in directories, made to be kept
        _log.warning("volume.too_deep", name=repr(name))
    except FileNotFoundError:
        return
    except OSError as error:
        _note(failures, error)
        _log.debug("volume.unlink_failed", name=repr(name), error=error.strerror)


def _note(failures: list[BaseException], failure: BaseException) -> None:
    """One of a kind is enough."""
    if (len(failures) < AT_ONCE and _can_pass(failure)) or not failures:
        failures.append(failure)
