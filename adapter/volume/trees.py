"""
What lies below a folder, counted without following a link.

Names and contents may be anybody's: a Triton that runs as root can write there. What vanishes meanwhile, or may not be
looked at, counts nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path


def mount_of(descriptor: int) -> str:
    """
    The mount that an open file or folder lies on, as this process sees it: two mounts of one file system differ.

    Where the kernel does not tell it (gVisor), the file system. Source: proc(5), `/proc/pid/fdinfo`, `mnt_id`. Raises OSError.
    """
    with suppress(OSError):
        for line in Path(f"/proc/self/fdinfo/{descriptor}").read_text().splitlines():
            if line.startswith("mnt_id:"):
                return line
    return f"device {os.fstat(descriptor).st_dev}"


class Files:
    """Plain files, each inode once. Files with one name cost no memory."""

    def __init__(self) -> None:
        self._names_left: dict[tuple[int, int], int] = {}
        """Inode with several names → how many of them were not seen yet."""

    def add(self, file: os.stat_result) -> tuple[int, int]:
        """
        Count one name of a file.

        Returns:
            Its bytes if this is the first name of it, else 0; and its bytes if this is the last of all names that it has, else 0.
        """
        if file.st_nlink <= 1:
            return file.st_size, file.st_size
        inode = (file.st_dev, file.st_ino)
        is_first = inode not in self._names_left
        left = self._names_left.get(inode, file.st_nlink) - 1
        self._names_left[inode] = left
        return file.st_size if is_first else 0, file.st_size if left == 0 else 0


def own_bytes(paths: Iterable[Path | str]) -> int:
    """Bytes of the files below, or of a file itself, that have no other name elsewhere: what deleting them all gives back."""
    files = Files()
    return sum(files.add(file)[1] for path in paths for file in files_below(path))


def files_below(path: Path | str, check: Callable[[], object] = lambda: None) -> Iterator[os.stat_result]:
    """Every plain file below, or the file itself. Whatever `check` raises ends it."""
    with suppress(OSError):
        state = os.lstat(path)
        if stat.S_ISREG(state.st_mode):
            yield state
        if not stat.S_ISDIR(state.st_mode):
            return
    folders = [path]
    while folders:
        check()
        with suppress(OSError), os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                elif entry.is_file(follow_symlinks=False):
                    check()
                    with suppress(OSError):  # it has vanished
                        yield entry.stat(follow_symlinks=False)


def read_below(folder: Path | str, path: str, most_bytes: int) -> bytes:
    """
    The content of a small plain file, reached without following a link and without waiting for a pipe or a device.

    Args:
        folder: it may be reached through links, but be none itself.
        path: of the file, relative to it.
        most_bytes: a longer file is not read.

    Raises:
        OSError: it is not there, too long, or no plain file. `errno` is ELOOP or ENOTDIR where a link is in the way.
    """
    *names, last = path.split("/")
    held = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        for name in names:
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
            os.close(held)
            held = inner
        if not stat.S_ISREG(os.lstat(last, dir_fd=held).st_mode):
            raise OSError(errno.ELOOP, "it is no plain file")
        descriptor = os.open(last, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=held)
    finally:
        os.close(held)
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode) or state.st_size > most_bytes:
            raise OSError(errno.EFBIG, f"it is no plain file of at most {most_bytes} bytes")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise OSError(errno.EFBIG, f"it has more than {most_bytes} bytes")
    return content
