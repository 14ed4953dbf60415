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
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import structlog

from adapter.errors import AdapterError, DiskFull, StartError
from adapter.folder_lock import FolderLock
from adapter.trash import Trash
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
        self.trash = Trash(self.trash_dir)
        self._lock = FolderLock(cache_dir / "lock")

    def claim(self) -> None:
        """
        Make the folders, keep other adapters out, and remove what an earlier process left in staging and trash.

        The repository folder keeps its content: Triton may be serving from it. So does the folder of artifacts, which
        whoever publishes there reads.

        Raises:
            VolumeError: not writable, not one file system, or another adapter is there.
        """
        _claim_directory(self.repository_dir)
        _claim_directory(self.cache_dir)
        self._take_lock()
        try:
            self.trash.home = self._lock.mount
            for folder in (self.staging_dir, self.artifacts_dir, self.trash_dir):
                _drop_link(folder)
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
        self._lock.release()

    def restore(self) -> None:
        """
        Make folders again that somebody has deleted while we work. Every write begins with it.

        Raises:
            AdapterError: names the folder; the lock went with it (another adapter may be there), or it cannot be made.
        """
        if not self._lock.is_in_place:
            raise AdapterError(f"the folder {self.cache_dir} was deleted while the adapter was working, with its lock; restart the adapter")
        for folder in (self.repository_dir, self.staging_dir, self.artifacts_dir, self.trash_dir):
            is_ours = folder != self.repository_dir
            if not folder.is_dir() or (is_ours and folder.is_symlink()):
                try:
                    if is_ours:
                        _drop_link(folder)
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

    def publish(self, staged: Path, name: str | None = None) -> Path:
        """
        Turn a staged directory into an artifact, in one rename.

        Args:
            staged: from `new_staging`.
            name: of the artifact, a plain one; what has that name is discarded first. Without it a random one.

        Raises:
            OSError, AdapterError: see `writing`.
        """
        self.restore()
        target = self.artifacts_dir / (name or secrets.token_hex(8))
        while True:
            try:
                staged.rename(target)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
                    raise
                self.discard(target)
                if os.path.lexists(target):  # nothing takes it away
                    raise
            else:
                return target

    def discard(self, path: Path) -> None:
        """
        Take a file or directory out of sight at once, then delete it as far as permitted; see `Trash`.

        Never raises; an absent path is fine.
        """
        if not os.path.lexists(path):
            return
        gone = self.trash.new_place()
        try:
            self.restore()
            path.rename(gone)
        except (OSError, AdapterError) as error:
            _log.warning("volume.rename_failed", path=str(path), error=str(error))
            gone = path
        if not self.trash.delete(gone, is_counted=path.parent != self.staging_dir):  # a reservation counts what is staged
            _log.warning("volume.leftover_kept", path=str(gone))

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

    def _take_lock(self) -> None:
        try:
            _drop_link(self._lock.path)
            self._lock.take()
        except BlockingIOError:
            raise VolumeError(f"another adapter already works on {self.cache_dir} (it holds {self._lock.path})") from None
        except OSError as error:
            raise VolumeError(f"cannot write or lock {self._lock.path}: {error.strerror}") from error

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
        for entry in list(self.staging_dir.iterdir()):
            self.discard(entry)
        self.trash.clear()


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


def _drop_link(path: Path) -> None:
    """A link where a folder of ours belongs is somebody else's: it would lead what we write and delete elsewhere. Raises OSError."""
    if path.is_symlink():
        path.unlink()


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
