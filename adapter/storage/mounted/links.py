"""
Where a path leads to, found without entering what is not to be entered: which claims, or out of a folder.

A claim's server may be away, and whoever looks at anything in it then hangs. So links are followed one component at a time,
and each claim is told before the first look into it. Blocks on the volume that the path begins on; runs in threads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL)
"""What a file system says of a path that leads to nothing, or is no link; whatever else it says is trouble of its own."""
_MOST_LINKS = 40
"""The kernel follows no more. Source: path_resolution(7)."""


def claims_on_the_way(path: Path, mounts: Path) -> Iterator[str]:
    """
    The names of the claims that lie on the way to the end of an absolute path, links followed.

    Whoever does not ask on looks into none of those that he was told. Of a path that leads nowhere, or round in a circle,
    only the part up to there counts.

    Args:
        path: may begin in a claim.
        mounts: the folder of claims.
    """
    folder = os.path.realpath(mounts)
    here, links = "/", 0
    ahead = list(reversed(path.parts[1:]))
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - the hot path of a listing with many links
            continue
        if here == folder:
            yield name
        here = os.path.join(here, name)  # noqa: PTH118 - likewise
        try:
            target = os.readlink(here)  # noqa: PTH115 - likewise
        except (OSError, ValueError):  # no link, nothing, or no name at all
            continue
        links += 1
        if links > _MOST_LINKS:
            return
        here = "/" if target.startswith("/") else os.path.dirname(here)  # noqa: PTH120 - likewise
        ahead += reversed(target.split("/"))


class LeadsAstray(Exception):
    """A path does not lead to anything in its folder: `out of …`, `nowhere` or `round in a circle`."""

    def __init__(self, text: str, rest: Path = Path()) -> None:
        """`rest`: the absolute path as it goes on outside the folder, where nothing was looked at; else empty."""
        super().__init__(text)
        self.rest = rest


def end_within(path: Path, folder: Path) -> Path:
    """
    Where an absolute path ends in a folder, links and `..` followed as the kernel does. Something is there.

    Nothing outside the folder is looked at but the folders that it lies in: what is there may hang, and is nobody's business.
    A link that is written with the folder's own name leads into it, also where that name is a link.

    Raises:
        LeadsAstray: the path, or a link on its way, leads elsewhere.
        OSError: the file system cannot tell.
    """
    real = os.path.realpath(folder)
    here, ahead = _begun(path, folder, real)
    links = 0
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        here = os.path.dirname(here) if name == ".." else os.path.join(here, name)  # noqa: PTH118, PTH120 - the hot path of a listing with many links
        if not (_is_at_or_below(here, real) or _is_at_or_below(real, here)):
            raise LeadsAstray(f"out of {folder}", Path(here, *reversed(ahead)))
        target = _target(here)
        if target is None:
            continue
        links += 1
        if links > _MOST_LINKS:
            raise LeadsAstray("round in a circle")
        if target.startswith("/"):
            here, more = _begun(Path(target), folder, real)
        else:
            here, more = os.path.dirname(here), list(reversed(target.split("/")))  # noqa: PTH120 - likewise
        ahead += more
    if not _is_at_or_below(here, real):
        raise LeadsAstray(f"out of {folder}")
    return Path(here)


def _begun(path: Path, folder: Path, real: str) -> tuple[str, list[str]]:
    """Where to begin, and the names ahead, the next one last."""
    top, parts = folder.parts, path.parts
    if parts[: len(top)] == top:
        return real, list(reversed(parts[len(top) :]))
    return "/", list(reversed(parts[1:]))


def _target(path: str) -> str | None:
    """Of a link; None for what is none. Raises LeadsAstray: nothing is there."""
    try:
        return os.readlink(path)  # noqa: PTH115 - likewise
    except ValueError as error:  # no name at all: it has a NUL byte
        raise LeadsAstray("nowhere") from error
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        if error.errno in NOT_THERE:
            raise LeadsAstray("nowhere") from error
        raise


def _is_at_or_below(path: str, folder: str) -> bool:
    return folder in (path, "/") or path.startswith(f"{folder}/")
