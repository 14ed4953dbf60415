"""
The adapter's claim on the shared volume: what is staged, published, and how things leave.

Owns Triton's repository folder and the adapter's own folder (`folders`: staging, artifacts, trash, a lock file that keeps
a second adapter out). Both lie on one file system: what is staged becomes visible by rename, and files are placed by hard
link. Staging names are random, never a model id, so nothing that an earlier process left can be mistaken for ours. Nothing
else on the volume is touched.

Knows nothing of storage or of Triton: both stage and discard through it. All calls block;
run them in a thread.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from adapter.volume.folders import Folders, VolumeError, failure_in_words, make_plain_directory
from adapter.volume.trash import Trash

__all__ = ["FILE_MODE", "Volume", "VolumeError", "make_plain_directory"]

FILE_MODE = 0o644


class Volume(Folders):
    """The adapter's claim on the shared volume. `claim` comes first, `close` last."""

    def __init__(self, repository_dir: Path, cache_dir: Path) -> None:
        super().__init__(repository_dir, cache_dir)
        self.trash = Trash(self)

    def claim(self) -> None:
        """
        Make the folders, keep other adapters out, and remove what an earlier process left in staging and trash.

        The repository folder keeps its content: Triton may be serving from it. So does the folder of artifacts, which
        the cache reads.

        Raises:
            VolumeError: not writable, not one file system, or another adapter is there.
        """
        try:
            super().claim()
            self.check_links()
            self._clear_residue()
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise VolumeError(f"cannot clear {self.cache_dir} of what an earlier adapter left: {error.strerror}") from error
            raise

    def new_staging(self) -> Path:
        """A new empty directory. Raises OSError, AdapterError; see `writing`."""
        self.restore()
        self.trash.tidy()
        path = self.staging_dir / secrets.token_hex(8)
        make_plain_directory(path)
        return path

    def publish(self, staged: Path, name: str | None = None) -> Path:
        """
        Turn a staged directory into an artifact, in one rename.

        Args:
            staged: from `new_staging`.
            name: of the artifact, a plain one that nothing has. Without it a random one.

        Raises:
            OSError, AdapterError: see `writing`.
        """
        self.restore()
        target = self.artifacts_dir / (name or secrets.token_hex(8))
        self.trash.move_in(staged, target)
        return target

    def discard(self, path: Path) -> None:
        """As `Trash.discard`. Never raises."""
        self.trash.discard(path)

    @contextmanager
    def writing(self, needed_bytes: int) -> Iterator[None]:
        """
        Say in words what goes wrong while files of these bytes are written inside.

        Raises:
            DiskFull: no bytes or inodes are left, or the quota is used up.
            VolumeFailed: the volume is read-only, or cannot be used for another reason.
            AdapterError: a folder was deleted.
        """
        try:
            yield
        except OSError as error:
            raise failure_in_words(error, self.cache_dir, needed_bytes) from error

    def _clear_residue(self) -> None:
        for entry in list(self.staging_dir.iterdir()):
            self.discard(entry)
        for path in self.repository_dir.glob(".check-*"):  # of a start that ended in `check_links`
            if path.is_file():
                self.discard(path)
        self.trash.clear()
