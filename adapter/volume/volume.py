"""
The adapter's claim on the shared volume: its folders, what is staged, published and deleted, its failures in words.

Owns Triton's repository folder and the adapter's own folder: staging, artifacts, trash, and a lock file that keeps a second
adapter out. Folders that were deleted are made again as long as the lock file is still the one that we hold. All lie on one
file system: what is staged becomes visible by rename, and files are placed by hard link. Staging names are random, never a
model id, so nothing that an earlier process left can be mistaken for ours. Nothing else on the volume is touched.

Things leave our folders by a rename into the trash; then they are deleted. What cannot be deleted (a root Triton's files, a
disk that has failed) stays whole, is counted, and is tried again. The exception is what lies in Triton's folder: its name may
have another model by then, so its caller tries again. Nothing is deleted on another mount than the volume's: each writer of the
volume could have put a link in the place of a folder, and it would lead to what others have mounted beside it.

Knows nothing of storage or of Triton: both stage and discard through it. All calls block; run them in a thread.
"""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import structlog

from adapter.errors import AdapterError, DiskFull, StartError, VolumeFailed
from adapter.telemetry.metrics import LEFTOVERS
from adapter.units import show_bytes
from adapter.volume.trees import mount_of, own_bytes

FILE_MODE = 0o644
UMASK = 0o022
"""Triton runs as another user, and must be able to enter and to read, whatever umask the container has."""
RETRY_SECONDS = 60.0
FULL = (errno.ENOSPC, errno.EDQUOT)
"""What a file system says that has no bytes or inodes left, or whose quota is used up."""
_STAYS = (errno.ENOENT, errno.ENOTDIR, errno.EXDEV, errno.EACCES, errno.EPERM)
"""Of a rename: what cannot move for such a reason is deleted where it is."""

_log = structlog.stdlib.get_logger(__name__)


class VolumeError(StartError):
    """The adapter cannot work on this volume: one sentence for the operator."""


class Volume:
    """Triton's repository folder and the adapter's own. `claim` comes first, `close` last."""

    umask: int
    """The container's, which `claim` has changed for this process: other programs shall have it."""

    def __init__(self, repository_dir: Path, cache_dir: Path) -> None:
        self.repository_dir = repository_dir
        self.cache_dir = cache_dir
        self._own = [cache_dir / name for name in ("staging", "artifacts", "trash")]
        self.staging_dir, self.artifacts_dir, self.trash_dir = self._own
        self._lock_path = cache_dir / "lock"
        self._lock: int | None = None
        """The lock file that we hold: the kernel lets go of it when the process ends, however it ends."""
        self.mount: str | None = None
        """On which the adapter's own folder lies, as `trees.mount_of`; None before `claim`."""
        self._restoring = threading.Lock()
        self.problem: str | None = None
        """Why nothing can be written any more: another adapter has taken the folder over. From any thread."""
        self._left: dict[Path, int] = {}
        """What could not be deleted, with its bytes."""
        self._counting = threading.Lock()
        self._tidy_at = 0.0

    def claim(self) -> None:
        """
        Make the folders, keep other adapters out, and remove what an earlier process left in staging and trash.

        The repository folder keeps its content: Triton may be serving from it. So does the folder of artifacts, which
        the cache reads.

        Raises:
            VolumeError: not writable, not one file system, or another adapter is there.
        """
        doing = ""
        self.umask = os.umask(UMASK)
        try:
            for folder in (self.repository_dir, self.cache_dir, *self._own):
                doing = f"create the folder {folder}"
                self._make(folder)
                if folder == self.cache_dir:
                    doing = f"write or lock {self._lock_path}"
                    self._take_lock()
            doing = f"move or hard-link a file from {self.cache_dir} to {self.repository_dir}"
            placed = self.repository_dir / ".check"  # equal device numbers prove nothing: bind mounts share them
            placed.unlink(missing_ok=True)  # of a process that was killed here
            placed.hardlink_to(self._lock_path)
            placed.unlink()
            doing = f"clear {self.cache_dir} of what an earlier adapter left"
            for entry in [*self.staging_dir.iterdir(), *self.trash_dir.iterdir()]:
                self.discard(entry)
        except OSError as error:
            self.close()
            text = f"cannot {doing}: {error.strerror}"
            if isinstance(error, BlockingIOError):
                text = f"another adapter already works on {self.cache_dir} (it holds {self._lock_path})"
            elif error.errno == errno.EXDEV:
                apart = f"{self.cache_dir} and {self.repository_dir} are on different file systems (or mounts)"
                text = f"{apart}, but files are placed by rename and hard link; change CACHE_DIR"
            raise VolumeError(text) from error

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
                with self.writing(0, f"the folder {folder} is gone and cannot be made again: "):
                    self._make(folder)

    def new_staging(self) -> Path:
        """A new empty directory. Raises OSError, AdapterError; see `writing`."""
        self.restore()
        self.tidy()
        path = self.staging_dir / secrets.token_hex(8)
        path.mkdir()
        return path

    def publish(self, staged: Path, name: str = "artifact") -> Path:
        """
        Turn a staged directory into an artifact, in one rename.

        Args:
            staged: from `new_staging`.
            name: of the artifact, a plain one; what is random comes behind it.

        Raises:
            OSError, AdapterError: see `writing`.
        """
        self.restore()
        return staged.rename(self.artifacts_dir / f"{name}.{secrets.token_hex(8)}")

    def discard(self, path: Path) -> OSError | AdapterError | None:
        """
        Take a file or directory out of sight at once, then delete it as far as permitted; an absent path is fine. Never raises.

        Its caller counts its bytes until this returns.

        Returns:
            Why the disk keeps it as it was, or None.
        """
        self._note(path, None)
        gone = path
        try:
            path.lstat()  # what a failed disk does not show is not absent
            if path.parent != self.trash_dir:
                self.restore()
                gone = path.rename(self.trash_dir / secrets.token_hex(8))
        except (OSError, AdapterError) as error:
            is_disk = error.errno not in _STAYS if isinstance(error, OSError) else isinstance(error, VolumeFailed)
            if is_disk and path.parent != self.staging_dir:  # half of it would be worse than all of it
                self._note(path, own_bytes([path]))
                return error
        self._delete(gone)
        return None

    def tidy(self) -> None:
        """Delete what could not be deleted before, if it is time for another try."""
        with self._counting:
            if not self._left or time.monotonic() < self._tidy_at:
                return
            self._tidy_at = time.monotonic() + RETRY_SECONDS
            paths = list(self._left)
        for path in paths:
            self.discard(path)

    def left_bytes(self) -> int:
        """Of what could not be deleted, without files that are also elsewhere."""
        with self._counting:
            return sum(self._left.values())

    @contextmanager
    def writing(self, needed_bytes: int, what: str = "") -> Iterator[None]:
        """
        Say in words what goes wrong while files of these bytes are written inside; as `failure_in_words`.

        Raises:
            DiskFull: no bytes or inodes are left, or the quota is used up.
            VolumeFailed: the volume is read-only, or cannot be used for another reason.
            AdapterError: a folder was deleted.
        """
        try:
            yield
        except OSError as error:
            raise failure_in_words(error, self.cache_dir, needed_bytes, what) from error

    def _delete(self, path: Path) -> None:
        """
        Delete it, as far as permitted, in the very folder that has the path now; nothing where that lies on another mount.

        What stays is left.
        """
        with suppress(OSError, RecursionError), ExitStack() as stack:  # directories in directories, made to be kept
            parent = os.open(path.parent, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, parent)
            if self.mount not in (None, mount_of(parent)):
                _log.warning("volume.not_deleted", path=str(path), cause="a link leads to it, out of the volume")
                return
            if stat.S_ISDIR(os.lstat(path.name, dir_fd=parent).st_mode):
                shutil.rmtree(path.name, ignore_errors=True, dir_fd=parent)
            else:
                os.unlink(path.name, dir_fd=parent)
        if os.path.lexists(path):
            self._note(path, own_bytes([path]))

    def _note(self, path: Path, left_bytes: int | None) -> None:
        """It is left with these bytes; None: it is not, or another try begins."""
        if path.parent == self.repository_dir:
            return
        with self._counting:
            self._left.pop(path, None)
            if left_bytes is not None:
                self._left[path] = left_bytes
                _log.warning("volume.leftover_kept", path=str(path))
            LEFTOVERS.set(len(self._left))

    def _make(self, folder: Path) -> None:
        """With its parents, where it does not exist. Raises OSError."""
        if folder in self._own:
            _drop_link(folder)
        if not folder.is_dir():
            folder.mkdir(parents=True, exist_ok=True)

    def _restore_lock(self) -> None:
        """The lock went with the folder: it is taken again where no other adapter has it."""
        if self.cache_dir.is_symlink():  # it would lead what we write and delete elsewhere
            self.problem = f"the folder {self.cache_dir} was replaced by a link while the adapter was working; restart the adapter"
            raise AdapterError(self.problem)
        with self.writing(0, f"the folder {self.cache_dir} was deleted, and cannot be made again: "):
            try:
                self._make(self.cache_dir)
                self._take_lock()
            except BlockingIOError:
                self.problem = f"another adapter has taken over {self.cache_dir}, which was deleted (it holds {self._lock_path})"
                raise AdapterError(self.problem) from None
        _log.warning("volume.lock_taken_again", path=str(self._lock_path))

    def _take_lock(self) -> None:
        """Hold the file instead of an earlier one. Raises BlockingIOError: another process holds it. Raises OSError."""
        _drop_link(self._lock_path)
        file = os.open(self._lock_path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, FILE_MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(file)
            raise
        self.close()
        self._lock, self.mount = file, mount_of(file)

    def _holds_lock(self) -> bool:
        """Whether the file in the folder is the one that we hold. Raises OSError: the folder cannot be looked at."""
        held = self._lock  # `close` may come meanwhile
        try:
            return held is not None and os.path.samestat(os.fstat(held), self._lock_path.lstat())
        except (FileNotFoundError, NotADirectoryError):
            return False


def open_file(path: str | Path, *, is_new: bool, mode: int = FILE_MODE) -> int:
    """To write. What is new must not be there: a file with a second name elsewhere is not ours to change. Raises OSError."""
    flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if is_new else 0)
    return os.open(path, flags, mode)


def _drop_link(path: Path) -> None:
    """A link where a folder of ours belongs was made by others: it would lead what we write and delete elsewhere. Raises OSError."""
    if path.is_symlink():
        path.unlink()


def failure_in_words(error: OSError, folder: Path, needed_bytes: int, what: str = "") -> AdapterError:
    """
    The error to raise instead.

    Args:
        error: of a call below the folder.
        folder: on the volume.
        needed_bytes: what was to be written; 0: a directory, which takes no bytes worth telling.
        what: begins the sentence, where the cause alone does not tell what could not be done.
    """
    if error.errno == errno.ENOENT and error.filename and not what:  # else no look there: it may be in a claim
        path = Path(os.fsdecode(error.filename))
        for place in (*reversed(path.parents), path):
            if not os.path.lexists(place):
                return AdapterError(f"{place} was deleted while the adapter was working")
    if error.errno == errno.EROFS:
        return VolumeFailed(
            f"{what}the volume is read-only: nothing can be written below {folder} (after an error of the disk the kernel does so)"
        )
    if error.errno not in FULL:
        return VolumeFailed(f"{what or 'the model volume cannot be written: '}{error.strerror or error}")
    needed = f"the files need {show_bytes(needed_bytes)}, " if needed_bytes else ""
    state = os.statvfs(folder)
    free = show_bytes(state.f_bavail * state.f_frsize) + (f" and {state.f_favail} inodes" if state.f_files else "")
    return DiskFull(f"{what}the volume has no room ({error.strerror}): {needed}free are {free}")
