"""
What lies in Triton's repository folder: the tree of a model, which directory it is, how many bytes there are. Blocks.

A tree has directories of our own, hard links to the files of an artifact, written configs. A file that is not ours is
linked to by its path, and not looked at: its volume may hang, and storage has just checked it.

Beside every `.py` lies an empty `__pycache__`: what a python stub of another user writes into it, we can delete,
since the directory is ours. Paths are plain text here: a `Path` for each of 100,000 files takes longer than all
links.
"""

from __future__ import annotations

import os
import stat
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath

from adapter.errors import AdapterError
from adapter.model import Artifact, Layout, SourceFile, is_utf8, owner_of
from adapter.volume.trees import Files, files_below
from adapter.workers import Stop

PYCACHE = "__pycache__"


def inner_of(folder: Path) -> dict[str, set[str]]:
    """The names of inner models by the id of their bundle; nothing is asked of the entries themselves."""
    found: dict[str, set[str]] = {}
    with suppress(OSError):
        for name in os.listdir(folder):  # noqa: PTH208 - plain names
            if (owner := owner_of(name)) != name:
                found.setdefault(owner, set()).add(name)
    return found


def is_plain_directory(path: Path) -> bool:
    """Whether it is a directory itself, and not a link to one."""
    return not path.is_symlink() and path.is_dir()


def identity_of(directory: Path) -> str:
    """
    Which directory it is: a name that stays while its own entries do, whatever is written below them.

    Inode number and time of the last change; `build` gives each directory a time that no other one has.

    Raises:
        OSError: there is no such directory.
    """
    state = directory.lstat()
    return f"{state.st_ino}~{state.st_mtime_ns}"


def identities_of(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """The identities of the directories of these names; of those that are there."""
    found: dict[str, str] = {}
    for name in names:
        with suppress(OSError):
            found[name] = identity_of(folder / name)
    return found


def bytes_of(entries: Iterable[Path], stop: Stop) -> tuple[dict[str, int], dict[str, int]]:
    """
    Look at the directories among the entries of the folder. Links are not followed.

    Returns:
        Bytes by model id, of a bundle's models together, each file once; and by the directory's name, bytes of files that have no
        name outside the folder.
    """
    everywhere, own, sizes = Files(), defaultdict[str, int](int), defaultdict[str, int](int)
    of_model: dict[str, Files] = defaultdict(Files)
    for path in entries:
        if is_plain_directory(path) and is_utf8(path.name):
            model_id = owner_of(path.name)
            sizes[model_id] += 0
            for file in files_below(path, stop.check):
                sizes[model_id] += of_model[model_id].add(file)[0]
                own[path.name] += everywhere.add(file)[1]
    return sizes, own


def build(staging: Path, layout: Layout, artifact: Artifact, stop: Stop) -> None:
    """
    Fill an empty directory.

    Raises:
        AdapterError: a file of the artifact is not on the volume any more.
        OSError: the volume cannot be written; see `Volume.writing`.
    """
    folders = {path.rpartition("/")[0] for path in (*layout.links, *layout.written)}
    caches = {f"{path.rpartition('/')[0]}/{PYCACHE}".removeprefix("/") for path in layout.links if path.endswith(".py")}
    leaves = {*map(PurePosixPath, (*layout.directories, *folders, *caches - layout.links.keys()))}
    for folder in sorted(leaves.union(*(leaf.parents for leaf in leaves)) - {PurePosixPath()}):
        stop.check()
        (staging / folder).mkdir()
    for path, file in layout.links.items():
        stop.check()
        _link(artifact, file, f"{staging}/{path}")
    for path, content in layout.written.items():
        (staging / path).write_bytes(content)
    now = time.time_ns()
    os.utime(staging, ns=(now, now))


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
