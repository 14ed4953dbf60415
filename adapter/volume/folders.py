"""
The folders that are ours on the shared volume: claimed at the start, checked, and made again when they were deleted.

A lock file keeps a second adapter out; folders are made again only as long as the lock file is still the one that we hold.
What a file system's errors mean is said in words here. All calls block.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import threading
from contextlib import suppress
from pathlib import Path

import structlog

from adapter.errors import AdapterError, DiskFull, StartError, VolumeFailed
from adapter.units import show_bytes
from adapter.volume.trees import mount_of

DIRECTORY_MODE = 0o755
"""Triton runs as another user, and must be able to enter."""
_LOCK_MODE = 0o644

_log = structlog.stdlib.get_logger(__name__)


class VolumeError(StartError):
    """The adapter cannot work on this volume: one sentence for the operator."""


class Folders:
    """Triton's repository folder and the adapter's own. `claim` comes first, `close` last."""

    def __init__(self, repository_dir: Path, cache_dir: Path) -> None:
        self.repository_dir = repository_dir
        self.cache_dir = cache_dir
        self.staging_dir = cache_dir / "staging"
        self.artifacts_dir = cache_dir / "artifacts"
        self.trash_dir = cache_dir / "trash"
        self._own = (self.staging_dir, self.artifacts_dir, self.trash_dir)
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
            OSError: a link in the place of a folder cannot be taken away. The caller closes then.
        """
        _claim_directory(self.repository_dir)
        _claim_directory(self.cache_dir)
        try:
            self._take_lock()
        except BlockingIOError:
            raise VolumeError(f"another adapter already works on {self.cache_dir} (it holds {self._lock_path})") from None
        except OSError as error:
            raise VolumeError(f"cannot write or lock {self._lock_path}: {error.strerror}") from error
        for folder in self._own:
            _drop_link(folder)
            _claim_directory(folder)

    def close(self) -> None:
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
        with self._restoring:
            if not self._holds_lock():
                self._restore_lock()
            self.problem = None
            for folder in (self.repository_dir, *self._own):
                is_ours = folder in self._own
                if folder.is_dir() and not (is_ours and folder.is_symlink()):
                    continue
                try:
                    if is_ours:
                        _drop_link(folder)
                    _make_directory(folder)
                except OSError as error:
                    raise failure_in_words(error, self.cache_dir, 0, f"the folder {folder} is gone and cannot be made again: ") from error
                _log.warning("volume.folder_restored", path=str(folder))

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
        except OSError as error:
            text = f"cannot move or hard-link a file from {self.cache_dir} to {self.repository_dir}: {error.strerror}"
            if error.errno == errno.EXDEV:
                text = (
                    f"{self.cache_dir} and {self.repository_dir} are on different file systems (or mounts), "
                    "but files are placed by rename and hard link; change CACHE_DIR"
                )
            raise VolumeError(text) from error
        finally:
            for path in (staged, placed):
                with suppress(OSError):
                    path.unlink()

    def _take_lock(self) -> None:
        """Hold the file instead of an earlier one. Raises BlockingIOError: another process holds it. Raises OSError."""
        _drop_link(self._lock_path)
        file = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, _LOCK_MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise
        self.close()
        self._lock = file

    def _holds_lock(self) -> bool:
        """Whether the file in the folder is the one that we hold. Raises OSError: the folder cannot be looked at."""
        held = self._lock  # `close` may come meanwhile
        try:
            return held is not None and os.path.samestat(os.fstat(held), self._lock_path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            return False


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


def _drop_link(path: Path) -> None:
    """A link where a folder of ours belongs was made by others: it would lead what we write and delete elsewhere. Raises OSError."""
    if path.is_symlink():
        path.unlink()


def _claim_directory(path: Path) -> None:
    try:
        _make_directory(path)
    except OSError as error:
        raise VolumeError(f"cannot create the folder {path}: {error.strerror}") from error


def failure_in_words(error: OSError, folder: Path, needed_bytes: int, what: str = "") -> AdapterError:
    """
    The error to raise instead.

    Args:
        error: of a call below the folder.
        folder: on the volume.
        needed_bytes: what was to be written; 0: a directory, which takes no bytes worth telling.
        what: begins the sentence, where the cause alone does not tell what could not be done.
    """
    if not what and (gone := _deleted(error)):
        return AdapterError(f"{gone} was deleted while the adapter was working")
    if error.errno == errno.EROFS:
        return VolumeFailed(
            f"{what}the volume is read-only: nothing can be written below {folder} (after an error of the disk the kernel does so)"
        )
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return VolumeFailed(f"{what or 'the model volume cannot be written: '}{error.strerror or error}")
    needed = f"the files need {show_bytes(needed_bytes)}, " if needed_bytes else ""
    return DiskFull(f"{what}the volume has no room ({error.strerror}): {needed}free are {_free_words(folder)}")


def _free_words(folder: Path) -> str:
    try:
        state = os.statvfs(folder)
    except OSError as error:
        return f"unknown ({error.strerror})"
    inodes = f" and {state.f_favail} inodes" if state.f_files else ""
    return f"{show_bytes(state.f_bavail * state.f_frsize)}{inodes}"


def _deleted(error: OSError) -> Path | None:
    """What is gone, when that is why a path was not found: the first folder on its way that does not exist."""
    if error.errno != errno.ENOENT or error.filename is None:
        return None
    path = Path(os.fsdecode(error.filename))
    return next((place for place in (*reversed(path.parents), path) if not os.path.lexists(place)), None)
