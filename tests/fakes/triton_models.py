"""A model of the fake Triton: how it behaves, and how its folder is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Behaviour:
    """How one model behaves. Change it at any time; the next call sees it."""

    load_seconds: float = 0.0
    unload_seconds: float = 0.0
    is_held: Callable[[str], bool] = lambda _: False
    """
    Whether the model stays in this step (`load`, `infer`, `unload`, and `tell`: the call that asks for the unload) longer than
    its seconds; asked until it does not.
    """
    refuse: str | None = None
    """Every load fails with this reason, in Triton's own frame."""
    hang: bool = False
    """A load never ends, like that of a python model without model.py."""
    die: bool = False
    """A load takes the whole Triton down, like a segmentation fault in a backend."""
    reported_bytes: int = 0


def newest_ns(folder: Path) -> int:
    """The latest change of anything in it, as mtime or ctime: what decides whether a second load loads again."""
    newest = 0
    for path in (folder, *folder.rglob("*")):
        status = path.stat()
        newest = max(newest, status.st_mtime_ns, status.st_ctime_ns)
    return newest


def versions(folder: Path) -> list[str]:
    """The directories that are versions: the newest one, or all under the policy of that name."""
    names = [path.name for path in folder.iterdir() if path.is_dir() and re.fullmatch(r"0|[1-9][0-9]*", path.name)]
    names.sort(key=int, reverse=True)
    return names if re.search(r"version_policy\s*:?\s*\{\s*all", _config(folder)) else names[:1]


def lacks_python_file(folder: Path, version: str) -> bool:
    """What makes a load of the python backend hang for ever."""
    return 'backend: "python"' in _config(folder) and not (folder / version / "model.py").exists()


def _config(folder: Path) -> str:
    path = folder / "config.pbtxt"
    return path.read_text(errors="replace") if path.is_file() else ""
