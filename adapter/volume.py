"""
The folders on the shared volume that are ours, and how things leave them.

Owns Triton's repository folder and the adapter's own folder (staging, artifacts, trash, a lock file
that keeps a second adapter out). Both lie on one file system: what is staged becomes visible by
rename, and files are placed by hard link. Staging names are random, never a model id, so nothing
that an earlier process left can be mistaken for ours. Nothing else on the volume is touched. Folders
that somebody deletes meanwhile are made again as long as the lock file is still the one that we hold.

Knows nothing of storage or of Triton: both rooms stage and discard through it. All calls block;
run them in a thread.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from adapter.errors import AdapterError, DiskFull, StartError
from adapter.telemetry.metrics import LEFTOVERS
from adapter.units import show_bytes

DIRECTORY_MODE = 0o755
"""Triton runs as another user, and must be able to enter."""
FILE_MODE = 0o644

_log = structlog.stdlib.get_logger(__name__)


class VolumeError(StartError):
    """The adapter cannot work on this volume: one sentence for the operator."""


class Volume:
    """The adapter's claim on the shared volume. `claim` comes first, `close` last."""

    def __init__(self, repository_dir: Path, cache_dir: Path) -> None:
        self.repository_dir = repository_dir
        self.cache_dir = cache_dir
        self.staging_dir = cache_dir / "staging"
        self.artifacts_dir = cache_dir / "artifacts"
        self.trash_dir = cache_dir / "trash"
        self._lock_file: int | None = None
        self._leftovers = 0
        self._counting = threading.Lock()

    def claim(self) -> None:
        """
        Make the folders, keep other adapters out, and remove what an earlier process left in ours.

        The repository folder keeps its content: Triton may be serving from it.

        Raises:
            VolumeError: not writable, not one file system, or another adapter is there.
        """
        _claim_directory(self.repository_dir)
        _claim_directory(self.cache_dir)
        self._lock()
        try:
            for folder in (self.staging_dir, self.artifacts_dir, self.trash_dir):
                _claim_directory(folder)
            self._check_links()
            self._clear_residue()
        except OSError as error:
            self.close()
            raise VolumeError(f"cannot clear {self.cache_dir} of what an earlier adapter left: {error.strerror}") from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let another adapter in. The folders stay."""
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    def restore(self) -> None:
        """
        Make folders again that somebody has deleted while we work. Every write begins with it.

        Raises:
            AdapterError: names the folder; the lock went with it (another adapter may be there), or it cannot be made.
        """
        if not self._is_still_ours():
            raise AdapterError(f"the folder {self.cache_dir} was deleted while the adapter was working, with its lock; restart the adapter")
        for folder in (self.repository_dir, self.staging_dir, self.artifacts_dir, self.trash_dir):
            if not folder.is_dir():
                try:
                    _make_directory(folder)
                except OSError as error:
                    raise AdapterError(f"the folder {folder} is gone and cannot be made again: {error.strerror}") from error
                _log.warning("volume.folder_restored", path=str(folder))

    def new_staging(self) -> Path:
        """A new empty directory that nobody else knows. Raises OSError, AdapterError; see `writing`."""
        self.restore()
        path = self.staging_dir / secrets.token_hex(8)
        make_plain_directory(path)
        return path

    def publish(self, staged: Path) -> Path:
        """Turn a staged directory into an artifact, in one rename. Raises OSError, AdapterError; see `writing`."""
        self.restore()
        target = self.artifacts_dir / secrets.token_hex(8)
        staged.rename(target)
        return target

    def discard(self, path: Path) -> None:
        """
        Take a file or directory out of sight at once, then delete it as far as permitted.

        Never raises; an absent path is fine. A root Triton's `__pycache__` cannot be deleted by
        another user: such leftovers stay in the trash, are counted, and are tried again at start.
        """
        if not os.path.lexists(path):
            return
        gone = self.trash_dir / secrets.token_hex(8)
        try:
            self.restore()
            path.rename(gone)
        except (OSError, AdapterError) as error:
            _log.warning("volume.rename_failed", path=str(path), error=str(error))
            gone = path
        self._delete(gone)

    def require_room(self, needed_bytes: int, files: int) -> None:
        """
        Make sure that the volume has room for so many bytes and files.

        Raises:
            DiskFull: with both numbers.
            AdapterError: our folder is gone.
        """
        self.restore()
        state = os.statvfs(self.cache_dir)
        free = state.f_bavail * state.f_frsize
        if needed_bytes > free:
            raise DiskFull(f"the volume has no room: the files need {show_bytes(needed_bytes)}, free are {show_bytes(free)}")
        if state.f_files and files > state.f_favail:
            raise DiskFull(f"the volume has no room: {files} files are needed, free are {state.f_favail} inodes")

    @contextmanager
    def writing(self, needed_bytes: int) -> Iterator[None]:
        """
        Say in words what goes wrong while files of so many bytes are written inside.

        Raises:
            DiskFull: no room, or the quota is used up.
            AdapterError: the volume cannot be written for another reason.
        """
        try:
            yield
        except OSError as error:
            if gone := _deleted(error):
                raise AdapterError(f"{gone} was deleted while the adapter was working") from error
            if error.errno not in (errno.ENOSPC, errno.EDQUOT):
                raise AdapterError(f"the model volume cannot be written: {error.strerror}") from error
            state = os.statvfs(self.cache_dir)
            free = show_bytes(state.f_bavail * state.f_frsize)
            raise DiskFull(
                f"the volume has no room ({error.strerror}): the files need {show_bytes(needed_bytes)}, free are {free}"
            ) from error

    def _lock(self) -> None:
        path = self.cache_dir / "lock"
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, FILE_MODE)
        except OSError as error:
            raise VolumeError(f"cannot write {path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(file)
            raise VolumeError(f"another adapter already works on {self.cache_dir} (it holds {path})") from None
        except OSError as error:
            os.close(file)
            raise VolumeError(f"cannot lock {path}: {error.strerror}") from error
        self._lock_file = file

    def _is_still_ours(self) -> bool:
        """Whether the lock file in our folder is the one that we hold."""
        held = self._lock_file  # `close` may come meanwhile
        try:
            return held is not None and os.path.samestat(os.fstat(held), (self.cache_dir / "lock").stat())
        except OSError:
            return False

    def _check_links(self) -> None:
        """Try what placing a model needs. Equal device numbers prove nothing: bind mounts share them."""
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

    def _clear_residue(self) -> None:
        for folder in (self.staging_dir, self.artifacts_dir):
            for entry in list(folder.iterdir()):
                self.discard(entry)
        for entry in list(self.trash_dir.iterdir()):
            self._delete(entry, is_new=False)
        with self._counting:
            self._leftovers = sum(1 for _ in self.trash_dir.iterdir())
            LEFTOVERS.set(self._leftovers)

    def _delete(self, path: Path, *, is_new: bool = True) -> None:
        if os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114 - Path's own may raise
            shutil.rmtree(path, ignore_errors=True)
        else:
            _unlink(path)
        if is_new and os.path.lexists(path):
            _log.warning("volume.leftover_kept", path=str(path))
            with self._counting:
                self._leftovers += 1
                LEFTOVERS.set(self._leftovers)


def make_plain_directory(path: Path) -> None:
    """Make one directory that Triton's user can enter, whatever our umask is. Raises OSError."""
    path.mkdir()
    path.chmod(DIRECTORY_MODE)


def _make_directory(path: Path) -> None:
    """With its parents, if it does not exist. Raises OSError."""
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    if is_new:
        path.chmod(DIRECTORY_MODE)


def _claim_directory(path: Path) -> None:
    try:
        _make_directory(path)
    except OSError as error:
        raise VolumeError(f"cannot create the folder {path}: {error.strerror}") from error


def _deleted(error: OSError) -> Path | None:
    """What is gone, when that is why a path was not found: the first folder on its way that does not exist."""
    if error.errno != errno.ENOENT or error.filename is None:
        return None
    path = Path(os.fsdecode(error.filename))
    return next((place for place in (*reversed(path.parents), path) if not os.path.lexists(place)), None)


def _unlink(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        _log.debug("volume.unlink_failed", path=str(path), error=error.strerror)
