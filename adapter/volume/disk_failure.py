"""
What a file system's errors mean for a model: the volume is full, read-only or broken, or a folder was deleted.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from adapter.errors import AdapterError, DiskFull, VolumeFailed
from adapter.units import show_bytes


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
