"""
What lies below a folder, counted and read without following a link; how small files are read.

Names and contents may be anybody's: a Triton that runs as root can write there. What vanishes meanwhile, or may not be
looked at, counts nothing.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path

from adapter.errors import InvalidModel, VolumeFailed

HEAD_BYTES = 64 * 1024
TAIL_BYTES = 256 * 1024


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
    """The content of a small file, as `open_below`. Raises OSError, also when it is larger."""
    return read_whole(open_below(folder, path), most_bytes)


def open_below(folder: Path | str, path: str) -> int:
    """
    A regular file, reached without following a link.

    Args:
        folder: it may be reached through links, but be none itself.
        path: of the file, relative to it.

    Raises:
        OSError: it is not there, or no regular file, or a link is in the way.
    """
    with ExitStack() as stack:
        held = None
        *names, last = path.split("/")
        for name in (folder, *names):
            held = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=held)
            stack.callback(os.close, held)
        return opened(last, os.O_RDONLY | os.O_NOFOLLOW, held)


def opened(path: Path | str, flags: int = os.O_RDONLY, folder: int | None = None) -> int:
    """
    A regular file, opened without waiting for a pipe or a device. An `opener` of Python's `open`.

    Args:
        path: absolute, or relative to the folder.
        flags: links are followed without O_NOFOLLOW.
        folder: its descriptor.

    Raises:
        OSError: not there, not allowed, or not a regular file.
    """
    # by its path first: to open a device for reading may have an effect
    found = os.open(path, os.O_PATH | os.O_CLOEXEC | flags & os.O_NOFOLLOW, dir_fd=folder)
    try:
        mode = os.fstat(found).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return os.open(f"/proc/self/fd/{found}", flags & ~os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    finally:
        os.close(found)


def read_whole(file: int, most_bytes: int) -> bytes:
    """The content of a small open file, which is closed. Raises OSError, also when it is larger."""
    with open(file, "rb") as content:
        read = content.read(most_bytes + 1)
    if len(read) > most_bytes:
        raise OSError(errno.EFBIG, f"larger than {most_bytes} bytes")
    return read


@dataclass(frozen=True)
class Ends:
    """Both ends of a file. A short file is whole in its tail."""

    head: bytes = field(repr=False)
    tail: bytes = field(repr=False)
    size_bytes: int


def read_ends(path: Path, check: Callable[[], object], opener: Callable[[str, int], int] = opened) -> Ends:
    """
    Read the ends of a file, in bounded memory.

    Args:
        path: a regular file.
        check: called before each read; may raise to end the work.
        opener: of Python's `open`. Without one, links are followed.

    Raises:
        InvalidModel: it is not a regular file.
        VolumeFailed: it cannot be read.
    """
    try:
        with open(path, "rb", opener=opener) as file:
            size_bytes = os.fstat(file.fileno()).st_size
            check()
            head = file.read(HEAD_BYTES)
            check()
            file.seek(max(0, size_bytes - TAIL_BYTES))
            return Ends(head, file.read(TAIL_BYTES), size_bytes)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.EISDIR):
            raise InvalidModel(f"the model's file {path.name} is not a regular file") from error
        raise VolumeFailed(f"the model's file {path.name} cannot be read on the volume: {error.strerror}") from error
