"""Relative paths of a model's files: what a file system can hold below the model, and how much of it one model may take. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterable

MAX_NAME_BYTES = 255
"""Of one segment. Source: Linux NAME_MAX."""
MAX_PATH_BYTES = 3 * 1024
"""Of one path. Linux takes 4,096 bytes (PATH_MAX), and our own folders stand before it."""
MAX_LEVELS = 500
"""Segments of one path. A traversal of a tree opens one folder for each."""
MAX_DIRECTORIES = 100_000
"""Of one model, at any depth."""
MAX_PATHS_MIB = 32
"""MiB that all paths of one model take in memory at once, those of the directories included: 100,000 of 250 letters."""


class TreeTooLarge(ValueError):
    """The paths of one model need more than it may take. The text follows `it`: `needs more than 100000 directories`."""


def directories_of(paths: Iterable[str]) -> set[str]:
    """
    All directories that files at these paths lie in, at any depth.

    Raises:
        TreeTooLarge: there are more than MAX_DIRECTORIES, or their paths take more than MAX_PATHS_MIB.
    """
    found: set[str] = set()
    held = 0
    for path in paths:
        parent = path.rpartition("/")[0]
        while parent and parent not in found:
            found.add(parent)
            held += held_bytes(parent)
            check_size(len(found), held)
            parent = parent.rpartition("/")[0]
    return found


def held_bytes(path: str) -> int:
    """What a path takes in memory: one letter that is not Latin makes two or four bytes of every letter."""
    return sys.getsizeof(path)


def check_size(directories: int, held: int) -> None:
    """
    Whether one model may have this number of directories, and paths that take this number of bytes in memory.

    Raises:
        TreeTooLarge: it may not.
    """
    if directories > MAX_DIRECTORIES:
        raise TreeTooLarge(f"needs more than {MAX_DIRECTORIES} directories")
    if held > MAX_PATHS_MIB * 1024 * 1024:
        raise TreeTooLarge(f"has paths of more than {MAX_PATHS_MIB} MiB, all of them together")


def path_problem(path: str) -> str | None:
    """Why no file can lie at this path below a model, or None. Follows `it`: `has an empty segment`."""
    if path.startswith("/"):
        return "is absolute"
    try:
        length = len(path) if path.isascii() else len(path.encode())
    except UnicodeEncodeError:
        return "is not Unicode text (it has half a surrogate pair)"
    if path.count("/") >= MAX_LEVELS:
        return f"has more than {MAX_LEVELS} levels"
    if length > MAX_PATH_BYTES:
        return f"has more than {MAX_PATH_BYTES} bytes"
    return _segment_problem(path)


def _segment_problem(path: str) -> str | None:
    for segment in path.split("/"):
        if segment in ("", ".", ".."):
            return f"has a {segment!r} in it" if segment else "has an empty segment"
        if len(segment) > MAX_NAME_BYTES // 4 and len(segment.encode()) > MAX_NAME_BYTES:  # a letter has at most four bytes
            return f"has a segment of more than {MAX_NAME_BYTES} bytes"
    return "contains a NUL byte" if "\0" in path else None
