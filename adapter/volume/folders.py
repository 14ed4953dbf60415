"""
The folders that are ours on the shared volume: claimed at the start, checked, and made again when they were deleted.

A lock file keeps a second adapter out; folders are made again only as long as the lock file is still the one that we hold.
All calls block.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import stat
import threading
from contextlib import suppress
from pathlib import Path

import structlog

from adapter.errors import AdapterError, StartError
from adapter.volume.disk_failure import failure_in_words
from adapter.volume.trees import mount_of

DIRECTORY_MODE = 0o755
"""Triton runs as another user, and must be able to enter."""
_LOCK_MODE = 0o644
_ABSENT = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.EBADF)
"""As `Path.is_dir` has it."""

_log = structlog.stdlib.get_logger(__name__)


class VolumeError(StartError):
    """The adapter cannot work on this volume: one sentence for the operator."""


class Folders:
    """Triton's repository folder and the adapter's own. `claim` comes first, `release` last."""

    def __init__(self, repository_dir: Path, cache_dir: Path) -> None:
        self.repository_dir = repository_dir
        self.cache_dir = cache_dir
        self.staging_dir = cache_dir / "staging"
        self.artifacts_dir = cache_dir / "artifacts"
        self.trash_dir = cache_dir / "trash"
        self._lock_path = cache_dir / "lock"
        self._lock: int | None = None
        """The lock file that we hold: the kernel lets go of it when the process ends, however it ends."""
        self._restoring = threading.Lock()
        self.problem: str | None = None
        """Another adapter has taken the folder over. From any thread."""

    @property
    def mount(self) -> str | None:
        """The mount on which the adapter's own folder lies, as `trees.mount_of`; None before `claim`."""
        return None if self._lock is None else mount_of(self._lock)

    def claim(self) -> None:
        """
        Make the folders, and keep other adapters out.

        Raises:
            VolumeError: not writable, or another adapter is there.
            OSError: a link in the place of a folder cannot be taken away. The caller releases then.
        """
        _claim_directory(self.repository_dir)
        _claim_directory(self.cache_dir)
        try:
            self._take_lock()
        except BlockingIOError:
            raise VolumeError(f"another adapter already works on {self.cache_dir} (it holds {self._lock_path})") from None
        except OSError as error:
            raise VolumeError(f"cannot write or lock {self._lock_path}: {error.strerror}") from error
        for folder in (self.staging_dir, self.artifacts_dir, self.trash_dir):
            _drop_link(folder)
            _claim_directory(folder)

    def release(self) -> None:
        """Let another adapter in. The folders stay."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def restore(self) -> None:
        """
        Make folders again that were deleted while we work.

        Raises:
            AdapterError: names the folder; another adapter has taken it over, or it cannot be made.
            OSError: the folder cannot be looked at.
        """
        if not self._holds_lock():
            with self._restoring:
                if not self._holds_lock():
                    self._restore_lock()
        self.problem = None
        self._restore_folders()

    def _restore_lock(self) -> None:
        """The lock went with the folder: it is taken again where no other adapter has it."""
        if self.cache_dir.is_symlink():  # it would lead what we write and delete elsewhere
            self.problem = f"the folder {self.cache_dir} was replaced by a link while the adapter was working; restart the adapter"
            raise AdapterError(self.problem)
        try:
            _make_directory(self.cache_dir)
            self._take_lock()
        except BlockingIOError:
            self.problem = f"another adapter has taken over {self.cache_dir}, which was deleted (it holds {self._lock_path})"
            raise AdapterError(self.problem) from None
        except OSError as error:
            what = f"the folder {self.cache_dir} was deleted, and cannot be made again: "
            raise failure_in_words(error, self.cache_dir, 0, what) from error
        _log.warning("volume.lock_taken_again", path=str(self._lock_path))

    def _restore_folders(self) -> None:
        for folder in (self.repository_dir, self.staging_dir, self.artifacts_dir, self.trash_dir):
            is_ours = folder != self.repository_dir
            if not _is_directory(folder, follows=not is_ours):
                try:
                    if is_ours:
                        _drop_link(folder)
                    _make_directory(folder)
                except OSError as error:
                    raise failure_in_words(error, self.cache_dir, 0, f"the folder {folder} is gone and cannot be made again: ") from error
                _log.warning("volume.folder_restored", path=str(folder))

    def check_links(self) -> None:
        """
        Try what placing a model needs. Equal device numbers prove nothing: bind mounts share them.

        Raises:
            VolumeError: the folders are not on one file system, or it has no hard links.
        """
        name = secrets.token_hex(8)
        staged, placed = self.staging_dir / name, self.repository_dir / f".check-{name}"
        try:
            staged.touch()
            placed.hardlink_to(staged)
            placed.unlink()
            staged.rename(placed)
            placed.unlink()
        except OSError as error:
            for path in (staged, placed):
                _unlink(path)
            if error.errno == errno.EXDEV:
                raise VolumeError(
                    f"{self.cache_dir} and {self.repository_dir} are on different file systems (or mounts), "
                    "but files are placed by rename and hard link; change CACHE_DIR"
                ) from error
            raise VolumeError(
                f"cannot move or hard-link a file from {self.cache_dir} to {self.repository_dir}: {error.strerror}"
            ) from error

    def _take_lock(self) -> None:
        """Hold the file instead of an earlier one. Raises BlockingIOError: another process holds it. Raises OSError."""
        _drop_link(self._lock_path)
        file = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _LOCK_MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise
        self.release()
        self._lock = file

    def _holds_lock(self) -> bool:
        """Whether the file in the folder is the one that we hold. Raises OSError: the folder cannot be looked at."""
        held = self._lock  # `release` may come meanwhile
        if held is None:
            return False
        try:
            return os.path.samestat(os.fstat(held), self._lock_path.lstat())
        except OSError as error:
            if error.errno in _ABSENT:
                return False
            raise


def make_plain_directory(path: Path) -> None:
    """Make one directory that Triton's user can enter, whatever our umask is. Raises OSError."""
    path.mkdir()
    try:
        path.chmod(DIRECTORY_MODE)
    except OSError:
        with suppress(OSError):  # another try finds no directory of ours
            path.rmdir()
        raise


def _make_directory(path: Path) -> None:
    """With its parents, if it does not exist. Raises OSError."""
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    if is_new:
        path.chmod(DIRECTORY_MODE)


def _is_directory(path: Path, *, follows: bool) -> bool:
    """Raises OSError: the file system cannot tell."""
    try:
        return stat.S_ISDIR(path.stat(follow_symlinks=follows).st_mode)
    except OSError as error:
        if error.errno in _ABSENT:
            return False
        raise


def _drop_link(path: Path) -> None:
    """A link where a folder of ours belongs was made by others: it would lead what we write and delete elsewhere. Raises OSError."""
    if path.is_symlink():
        path.unlink()


def _claim_directory(path: Path) -> None:
    try:
        _make_directory(path)
    except OSError as error:
        raise VolumeError(f"cannot create the folder {path}: {error.strerror}") from error


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("volume.unlink_failed", path=str(path), error=error.strerror)
