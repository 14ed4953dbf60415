"""
Space for a file before its bytes come, where the file system can give it at once.

`os.posix_fallocate` is of no use: where a file system cannot (NFS before 4.2, most of FUSE), the C library writes into each
block instead. So the system call itself is asked, and its refusal is an answer. In memory (tmpfs, an emptyDir of medium Memory)
it is not asked: there it fills each page with zeros before the bytes come, 0.1 s a GiB.
"""

from __future__ import annotations

import ctypes
import errno
import os

_CANNOT = (errno.EOPNOTSUPP, errno.ENOSYS)
"""Source: fallocate(2), posix_fallocate(3)."""

_TMPFS, _RAMFS = 0x01021994, 0x858458F6
"""Source: statfs(2)."""
_STATFS_BYTES = 256
"""More than any `struct statfs` has; the type is its first word."""

_libc = ctypes.CDLL(None, use_errno=True)
_libc.fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)


def fallocate(file: int, size_bytes: int) -> None:
    """The system call, for the first bytes of a file. Raises OSError."""
    while _libc.fallocate(file, 0, 0, size_bytes):
        if (failure := _failure()).errno != errno.EINTR:
            raise failure


def is_in_memory(file: int) -> bool:
    """Whether the file system keeps its files in memory. Raises OSError."""
    found = ctypes.create_string_buffer(_STATFS_BYTES)
    if _libc.fstatfs(file, found):
        raise _failure()
    return ctypes.c_long.from_buffer(found).value in (_TMPFS, _RAMFS)


def _failure() -> OSError:
    """Of the last call."""
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))


def preallocate(file: int, size_bytes: int) -> bool:
    """
    Give a file its length, and its space if that costs nothing.

    Returns:
        Whether the space is taken. False: the file is only as long.

    Raises:
        OSError: the volume is full, or broken.
    """
    if not is_in_memory(file):
        try:
            fallocate(file, size_bytes)
        except OSError as error:
            if error.errno not in _CANNOT:
                raise
        else:
            return True
    os.ftruncate(file, size_bytes)
    return False
