"""
The tree of one model: directories of our own, hard links to the files of an artifact, written configs.

A file that is not ours is linked to by its path, and not looked at: its volume may hang, and storage has just checked it.

Beside every `.py` lies an empty `__pycache__`: what a python stub of another user writes into it, we can delete, since
the directory is ours. Paths are plain text here: a `Path` for each of 100,000 files takes longer than all links.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from adapter.errors import AdapterError
from adapter.model import Artifact, Layout, SourceFile
from adapter.volume.volume import FILE_MODE, make_plain_directory
from adapter.workers import Stop

PYCACHE = "__pycache__"


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


def written_bytes(layout: Layout) -> int:
    """Bytes of what is written, not linked."""
    return sum(len(content) for content in layout.written.values())


def _link(artifact: Artifact, file: SourceFile, target: str) -> None:
    source = f"{artifact.root}/{file.path}"
    if not artifact.is_ours:
        Path(target).symlink_to(Path(source).absolute())
        return
    try:
        mode = os.lstat(source).st_mode
        if stat.S_ISREG(mode) and stat.S_IMODE(mode) != FILE_MODE:
            _set_mode(source)
        os.link(source, target, follow_symlinks=False)
        mode = os.lstat(target).st_mode
    except FileNotFoundError:
        raise _gone(file) from None
    if not stat.S_ISREG(mode):
        raise _gone(file)


def _set_mode(path: str) -> None:
    """Never through a link: it could lead to a file that is only ours to read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        os.fchmod(descriptor, FILE_MODE)
    finally:
        os.close(descriptor)


def _gone(file: SourceFile) -> AdapterError:
    return AdapterError(f"the model's file {file.path} is not on the volume any more")


def _make_directories(top: Path, directory: str, made: set[str]) -> None:
    """Like `mkdir -p` below the staging folder, with modes that do not depend on the umask."""
    if directory not in made:
        _make_directories(top, directory.rpartition("/")[0], made)
        make_plain_directory(top / directory)
        made.add(directory)
