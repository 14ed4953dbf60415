"""
What lies in Triton's repository folder: entries, the tree of a model, which directory it is, how many bytes it has.
Blocks.

A tree has directories of our own, hard links to the files of an artifact, written configs. A file that is not ours is
linked to by its path, and not looked at: its volume may hang, and storage has just checked it.

Beside every `.py` lies an empty `__pycache__`: what a python stub of another user writes into it, we can delete,
since the directory is ours. Paths are plain text here: a `Path` for each of 100,000 files takes longer than all
links.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct
import threading
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from adapter.errors import AdapterError
from adapter.model import Artifact, Layout, SourceFile, owner_of
from adapter.volume.trees import Files, files_below
from adapter.volume.volume import FILE_MODE, make_plain_directory
from adapter.workers import Stop

PYCACHE = "__pycache__"

_AT_FDCWD = -100
_AT_SYMLINK_NOFOLLOW = 0x100
_INODE_AND_BIRTH = 0x100 | 0x800
_STATX = struct.Struct("I28xQ40xqI164x")
"""Mask, inode, seconds and nanoseconds of birth, in `struct statx`. Source: Linux `include/uapi/linux/stat.h`."""
_statx = getattr(ctypes.CDLL(None, use_errno=True), "statx", None)


def entries_of(folder: Path) -> list[Path]:
    """All of them, with names that cannot be decoded too. Raises OSError."""
    return [folder / name for name in os.listdir(folder)]  # noqa: PTH208 - plain names


def inner_of(folder: Path) -> dict[str, set[str]]:
    """
    The names of inner models by the id of their bundle; nothing is asked of the entries themselves. None where it
    cannot be read.
    """
    found: dict[str, set[str]] = {}
    with suppress(OSError):
        for path in entries_of(folder):
            if (owner := owner_of(path.name)) != path.name:
                found.setdefault(owner, set()).add(path.name)
    return found


def is_plain_directory(path: Path) -> bool:
    """Whether it is a directory itself, and not a link to one."""
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def identity_of(directory: Path) -> str:
    """
    Which directory it is: a name that stays while it lives, whatever is written into it, and that no other one gets.

    Inode number and time of birth, which cannot be set; the number alone goes to the next directory as soon as this one
    is deleted. Where the file system keeps no births, the time of the last change of its entries instead. Python's
    `os.stat` tells no birth.

    Raises:
        OSError: there is no such directory.
    """
    buffer = ctypes.create_string_buffer(_STATX.size)
    name = os.fsencode(directory)
    if _statx is not None and not _statx(_AT_FDCWD, name, _AT_SYMLINK_NOFOLLOW, _INODE_AND_BIRTH, buffer):
        told, inode, seconds, nanoseconds = _STATX.unpack(buffer)
        if told & _INODE_AND_BIRTH == _INODE_AND_BIRTH:
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


def build(staging: Path, layout: Layout, artifact: Artifact, stop: Stop) -> None:
    """
    Fill an empty directory.

    Raises:
        AdapterError: a file of the artifact is not on the volume any more.
        OSError: the volume cannot be written; see `Volume.writing`.
    """
    made = {""}
    for directory in layout.directories:
        _make_directories(staging, directory, made)
    for placed, file in layout.links.items():
        stop.check()
        _make_directories(staging, placed.rpartition("/")[0], made)
        _link(artifact, file, f"{staging}/{placed}")
    for placed, content in layout.written.items():
        stop.check()
        _make_directories(staging, placed.rpartition("/")[0], made)
        target = staging / placed
        target.write_bytes(content)
        target.chmod(FILE_MODE)
    for directory in sorted({placed.rpartition("/")[0] for placed in layout.links if placed.endswith(".py")}):
        stop.check()
        cache = f"{directory}/{PYCACHE}".removeprefix("/")
        if cache not in layout.links:
            _make_directories(staging, cache, made)


def _link(artifact: Artifact, file: SourceFile, target: str) -> None:
    source = f"{artifact.root}/{file.path}"
    if not artifact.is_ours:
        Path(target).symlink_to(Path(source).absolute())
        return
    try:
        os.link(source, target, follow_symlinks=False)
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        mode = 0
    if not stat.S_ISREG(mode):
        raise AdapterError(f"the model's file {file.path} is not on the volume any more")
    if stat.S_IMODE(mode) != FILE_MODE:
        _set_mode(target)


def _set_mode(path: str) -> None:
    """Never through a link: it could lead to a file that is only ours to read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, FILE_MODE)
    finally:
        os.close(descriptor)


def _make_directories(top: Path, directory: str, made: set[str]) -> None:
    """Like `mkdir -p` below the staging folder, with modes that do not depend on the umask."""
    if directory not in made:
        _make_directories(top, directory.rpartition("/")[0], made)
        make_plain_directory(top / directory)
        made.add(directory)


class PlacedBytes:
    """
    How many bytes the placed models have, and how many of these are no artifact's. Asked from any thread.

    Files that are linked from an artifact are the cache's to count. What we write, and what was placed from an artifact
    that is gone, is counted here, so that each file on the volume counts once.
    """

    def __init__(self) -> None:
        self._own: dict[str, int] = {}
        """By the names of the folder."""
        self._lock = threading.Lock()

    def own_bytes(self) -> int:
        """Of all placed files that have no name outside the folder."""
        with self._lock:
            return sum(self._own.values())

    def placed(self, name: str, own_bytes: int) -> None:
        """
        A directory of this name is there, with this number of bytes that are not an artifact's; 0: or it is not there
        any more.
        """
        with self._lock:
            self._own.pop(name, None)
            if own_bytes:
                self._own[name] = own_bytes

    def survey(self, entries: Iterable[Path], stop: Stop) -> dict[str, int]:
        """
        Look at all directories of the folder.

        Returns:
            Bytes of the plain files by model id, of a bundle's models together, each file once; links are not followed.
        """
        with self._lock:
            before = dict(self._own)
        everywhere, own, sizes = Files(), defaultdict[str, int](int), dict[str, int]()
        of_model: dict[str, Files] = defaultdict(Files)
        for path in filter(is_plain_directory, entries):
            model_id = owner_of(path.name)
            sizes.setdefault(model_id, 0)
            for file in files_below(path, stop.check):
                sizes[model_id] += of_model[model_id].add(file)[0]
                own[path.name] += everywhere.add(file)[1]
        with self._lock:
            if self._own == before:  # else another look follows within a minute
                self._own = {name: size for name, size in own.items() if size}
        return sizes
