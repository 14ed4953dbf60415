"""
Small files that a config names, or is: nothing but regular files is opened, and a bounded part is read.

A path may lead to a device that has no end, or to one that does something when it is opened.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

MAX_BYTES = 1024 * 1024
"""Of one file. A secret or config map of Kubernetes is no larger. Source: kubernetes `MaxSecretSize`."""


def opened(path: str | Path, flags: int = os.O_RDONLY) -> int:
    """
    A regular file, opened without waiting; links are followed, since Kubernetes mounts links. An `opener` of Python's `open`.

    Raises:
        OSError: not there, not allowed, or not a regular file.
    """
    _check_regular(Path(path).stat())  # first: to open a device may have an effect
    file = os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        _check_regular(os.fstat(file))
    except OSError:
        os.close(file)
        raise
    return file


def read(path: Path) -> bytes:
    """The content of a small regular file. Blocks. Raises OSError, also when it is larger than `MAX_BYTES`."""
    with open(path, "rb", opener=opened) as file:
        return checked_size(file.read(MAX_BYTES + 1))


def checked_size(content: bytes) -> bytes:
    """What was read, up to a byte more than `MAX_BYTES`. Raises OSError when it is that much."""
    if len(content) > MAX_BYTES:
        raise OSError(errno.EFBIG, f"larger than {MAX_BYTES} bytes")
    return content


def _check_regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "not a regular file")
