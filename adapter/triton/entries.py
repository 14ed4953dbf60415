"""What has a name in Triton's repository folder, told from the names and from each entry itself: no link is followed."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from adapter.model import owner_of


def entries_of(folder: Path) -> list[Path]:
    """All of them, with names that cannot be decoded too. Raises OSError."""
    return [folder / name for name in os.listdir(folder)]  # noqa: PTH208 - plain names


def inner_of(folder: Path) -> dict[str, set[str]]:
    """The names of inner models by the id of their bundle; nothing is asked of the entries themselves. None where it cannot be read."""
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
