"""
Where paths and links end, found without a look at anything that they may not lead to.

A link is followed to its end, one component at a time, as the kernel does for Triton: what counts is where that end lies,
not how it is written. What lies elsewhere is not even looked at, since it may be a claim whose server does not answer.
Blocks on the volume that the path begins on; runs in threads.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from adapter.errors import InvalidModel

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG, errno.EINVAL)
"""What a file system says of a path that leads to nothing, or is no link; whatever else it says is trouble of its own."""
_MOST_LINKS = 40
"""The kernel follows no more. Source: path_resolution(7)."""


class LeadsAstray(Exception):
    """A path does not lead to anything that it may lead to: `out of …`, `nowhere` or `round in a circle`."""

    def __init__(self, text: str, rest: Path = Path()) -> None:
        """`rest`: the absolute path as it goes on outside, where nothing was looked at; else empty."""
        super().__init__(text)
        self.rest = rest


def steps(path: Path) -> Iterator[tuple[str, list[str]]]:
    """
    Each place on the way to the end of an absolute path, links followed, and the names after it, the next one last.

    A place is looked at when the step after it is asked for. The last step is the end.

    Raises:
        LeadsAstray: it leads nowhere, or round in a circle.
        OSError: the file system cannot tell.
    """
    here, links = "/", 0
    ahead = list(reversed(path.parts[1:]))
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        if name == "..":
            here = os.path.dirname(here)  # noqa: PTH120 - the hot path of a listing with many links
            yield here, ahead
            continue
        here = os.path.join(here, name)  # noqa: PTH118 - likewise
        yield here, ahead
        target = _target(here)
        if target is None:
            continue
        links += 1
        if links > _MOST_LINKS:
            raise LeadsAstray("round in a circle")
        here = "/" if target.startswith("/") else os.path.dirname(here)  # noqa: PTH120 - likewise
        ahead += reversed(target.split("/"))
    yield here, ahead


def claim_on_the_way(path: Path, mounts: Path) -> str | None:
    """
    The first claim on the way to the end of an absolute path. Nothing in a claim is looked at.

    Args:
        path: may begin in a claim. One that leads nowhere counts up to there.
        mounts: the folder of claims.
    """
    folder = os.path.realpath(mounts)
    with suppress(LeadsAstray, OSError):
        for here, _ in steps(path):
            above, _, name = here.rpartition("/")
            if above == folder:
                return name
    return None


@dataclass(frozen=True)
class Bounds:
    """Folders that a model, and the links in it, may lead to."""

    folders: tuple[Path, ...] = ()
    """Everything in these, and themselves."""
    root: Path | None = None
    """Everything in it, but not itself."""
    own: tuple[Path, ...] = ()
    """Of the root: the adapter's own folders. No model is made of another model's placed files."""
    mounts: Path | None = None
    """Of the root: where claims are mounted. Only those among `folders` may be entered."""

    def end(self, path: Path) -> Path:
        """
        Where an absolute path ends. Something is there.

        Raises:
            LeadsAstray: it leads elsewhere, nowhere, or round in a circle.
            OSError: the file system cannot tell.
        """
        here = "/"
        for here, ahead in steps(path):
            if not self._has(here) and here not in self._way:
                raise LeadsAstray(f"out of {self._top}", Path(here, *reversed(ahead)))
        if not self._has(here):
            raise LeadsAstray(f"out of {self._top}")
        return Path(here)

    def check(self, link: Path) -> Path:
        """As `end`, for a link. Raises InvalidModel: it leads astray."""
        try:
            return self.end(link)
        except LeadsAstray as astray:
            raise self._refused(link, astray) from astray

    def found(self, path: Path) -> Path | None:
        """As `check`, for a path that may be no link; None: nothing has this name."""
        try:
            return self.end(path)
        except LeadsAstray as astray:
            if str(astray) == "nowhere" and not is_there(path):
                return None
            raise self._refused(path, astray) from astray

    def _refused(self, link: Path, astray: LeadsAstray) -> InvalidModel:
        return InvalidModel(f"the link {link} leads {astray}; a model's links must stay below {self._top}")

    @property
    def _top(self) -> Path | None:
        return self.folders[0] if self.folders else self.root

    @cached_property
    def _real(self) -> list[str]:
        return [os.path.realpath(folder) for folder in self.folders]

    @cached_property
    def _real_root(self) -> tuple[str, list[str], str | None]:
        root = os.path.realpath(self.root or "/")
        own = [os.path.realpath(folder) for folder in self.own]
        return root, own, None if self.mounts is None else os.path.realpath(self.mounts)

    @cached_property
    def _way(self) -> set[str]:
        """Places on the way to the folders, by the names with which they are configured: these folders may be links."""
        found = {"/"}
        for folder in (*self.folders, *(() if self.root is None else (self.root,))):
            with suppress(LeadsAstray):
                for here, _ in steps(folder):
                    found.add(here)
        return found

    def _has(self, place: str) -> bool:
        if any(_is_in(place, folder) for folder in self._real):
            return True
        if self.root is None:
            return False
        root, own, mounts = self._real_root
        if any(_is_in(place, folder) for folder in own):
            raise LeadsAstray("into a folder of the adapter's own")
        return place != root and _is_in(place, root) and (mounts is None or not _is_in(place, mounts))


def is_there(path: Path) -> bool:
    """Whether anything has this name; the last link is not followed. Raises OSError: the file system cannot tell."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno not in _NOT_THERE:
            raise
        return False
    except ValueError:  # no name at all: it has a NUL byte
        return False
    return True


def _target(path: str) -> str | None:
    """Of a link; None for what is none. Raises LeadsAstray: nothing is there."""
    try:
        return os.readlink(path)  # noqa: PTH115 - the hot path of a listing with many links
    except ValueError as error:  # no name at all: it has a NUL byte
        raise LeadsAstray("nowhere") from error
    except OSError as error:
        if error.errno == errno.EINVAL:
            return None
        if error.errno in _NOT_THERE:
            raise LeadsAstray("nowhere") from error
        raise


def _is_in(path: str, folder: str) -> bool:
    """Whether it is the folder, or lies in it."""
    return folder in (path, "/") or path.startswith(f"{folder}/")
