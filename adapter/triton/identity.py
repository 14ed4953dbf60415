"""
Which directory it is: a name that stays while the directory lives, whatever is written into it, and that no other one gets.

A directory's inode number goes to the next one as soon as it is deleted, and its times change with its content or by
`touch`. Its time of birth cannot be set, but Python's `os.stat` does not tell it.
"""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_INODE_AND_BIRTH = 0x100 | 0x800
_SIZE_BYTES = 256
_INODE = 32
_BIRTH = 80
"""Offsets in `struct statx`. Source: Linux `include/uapi/linux/stat.h`."""
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def identity_of(directory: Path) -> str:
    """
    Inode number and time of birth; where the file system keeps no births, the time of the last change of its entries instead.

    Raises:
        OSError: there is no such directory.
    """
    buffer = ctypes.create_string_buffer(_SIZE_BYTES)
    if _statx is not None and not _statx(_AT_FDCWD, os.fsencode(directory), _AT_SYMLINK_NOFOLLOW, _INODE_AND_BIRTH, buffer):
        (told,) = struct.unpack_from("I", buffer)
        if told & _INODE_AND_BIRTH == _INODE_AND_BIRTH:
            (inode,) = struct.unpack_from("Q", buffer, _INODE)
            seconds, nanoseconds = struct.unpack_from("qI", buffer, _BIRTH)
            return f"{inode}-{seconds}.{nanoseconds:09}"
    state = directory.lstat()
    return f"{state.st_ino}~{state.st_mtime_ns}"


def identities_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The identities of the directories of these names; of those that are there."""
    found: dict[str, str] = {}
    for name in names:
        with suppress(OSError):
            found[name] = identity_of(folder / name)
    return found
