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
from pathlib import Path

from adapter.errors import InvalidModel, SourceNotFound

NOWHERE = "nowhere"
CIRCLE = "round in a circle"
_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""What a file system says of a path that leads to nothing; any other error is trouble of its own."""
_MOST_LINKS = 40
"""The kernel follows no more. Source: path_resolution(7)."""


class LeadsAstray(Exception):
    """A path does not lead to anything that it may lead to: `out of …`, `into …`, `nowhere` or `round in a circle`."""

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
    here, links, ahead = "/", 0, list(reversed(path.parts[1:]))
    while ahead:
        name = ahead.pop()
        if name in ("", "."):
            continue
        here = os.path.dirname(here) if name == ".." else os.path.join(here, name)  # noqa: PTH118, PTH120 - the hot path of many links
        yield here, ahead
        try:
            target = os.readlink(here)  # noqa: PTH115 - likewise
        except OSError as error:
            if error.errno in _NOT_THERE:
                raise LeadsAstray(NOWHERE) from error
            if error.errno != errno.EINVAL:
                raise
            continue  # no link
        links += 1
        if links > _MOST_LINKS:
            raise LeadsAstray(CIRCLE)
        here = "/" if target.startswith("/") else os.path.dirname(here)  # noqa: PTH120 - likewise
        ahead += reversed(target.split("/"))
    yield here, ahead


class Bounds:
    """Where a model, and the links in it, may lead: the one rule. Of folders inside each other, the innermost decides."""

    def __init__(self, *folders: Path, closed: tuple[Path, ...] = ()) -> None:
        """
        Look at the folders. Blocks.

        Args:
            folders: everything in these, and themselves. Texts name the first.
            closed: nothing in these.
        """
        self._top = folders[0]
        self._is_open = {os.path.realpath(folder): folder in folders for folder in (*closed, *folders)}
        self._way = {"/"}
        """Places on the way to the folders, by the names with which they are configured: these folders may be links."""
        for folder in (*folders, *closed):
            with suppress(LeadsAstray):
                self._way.update(here for here, _ in steps(folder))

    def end(self, path: Path) -> Path:
        """
        Where an absolute path ends. Something is there.

        Raises:
            LeadsAstray: it leads elsewhere, nowhere, or round in a circle.
            OSError: the file system cannot tell.
        """
        here = "/"
        for here, ahead in steps(path):
            if here not in self._way:
                self._enter(here, ahead)
        self._enter(here, [])
        return Path(here)

    def check(self, path: Path, absent: str = "") -> Path:
        """
        As `end`, for a path of a request, or a link in a model.

        Raises:
            InvalidModel: it leads astray.
            SourceNotFound: it leads nowhere; with the text `absent`, if there is one.
        """
        try:
            return self.end(path)
        except LeadsAstray as astray:
            if absent and str(astray) == NOWHERE:
                raise SourceNotFound(absent) from astray
            raise InvalidModel(f"{path} leads {astray}; a model's links must stay below {self._top}") from astray

    def _enter(self, place: str, ahead: list[str]) -> None:
        """Raise LeadsAstray for a real path that may not be entered."""
        around = max((folder for folder in self._is_open if is_in(place, folder)), key=len, default=None)
        if around is not None and self._is_open[around]:
            return
        is_inside = around is not None and is_in(around, os.path.realpath(self._top))
        words = f"into {around}, where no model may lie" if is_inside else f"out of {self._top}"
        raise LeadsAstray(words, Path(place, *reversed(ahead)))


def is_in(path: str, folder: str) -> bool:
    """Whether a real path is the folder, or lies in it."""
    return folder in (path, "/") or path.startswith(f"{folder}/")
