"""
Where the links of a model may lead.

A link is followed to its end, as the kernel does for Triton; what counts is where that end lies, not
how it is written. Blocks; runs in threads.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adapter.errors import InvalidModel
from adapter.storage.mounted.links import NOT_THERE, LeadsAstray, claims_on_the_way, end_within


class Limits(Protocol):
    """Says whether a link of a model may lead where it leads."""

    def check(self, path: Path) -> None:
        """Raises InvalidModel: it may not, or leads to nothing. Raises OSError: the file system cannot tell."""
        ...


@dataclass(frozen=True)
class Within:
    """One folder of somebody else's. A link that leads out is refused before anybody looks at what lies there."""

    folder: Path

    def check(self, path: Path) -> None:
        """As `Limits`."""
        try:
            end_within(path, self.folder)
        except LeadsAstray as astray:
            raise InvalidModel(f"the link {path} leads {astray}; a model's links must stay below {self.folder}") from astray


@dataclass(frozen=True)
class Bounds:
    """Folders that a model may lie in."""

    claim: Path | None = None
    """The model may be all of it."""
    root: Path | None = None
    """ROOT_MODEL_DIR: below it only, and not in the adapter's own folders."""
    own: tuple[Path, ...] = ()
    """The adapter's own folders: no model is made of another model's placed files."""
    mounts: Path | None = None
    """Where claims are mounted: a link into another one is refused before anybody looks into that, since it may hang."""

    def check(self, path: Path, *, may_be_absent: bool = False) -> None:
        """
        Follow the links of a path to the end, and see that it lies inside.

        Raises:
            InvalidModel: it leads out, nowhere (unless that may be), round in a circle, or into a folder of ours.
            OSError: the file system cannot tell.
        """
        if self._leads_into_another_claim(path):
            raise self._leads_out(path)
        target = _followed(path, strict=not may_be_absent)
        is_inside = (self.claim is not None and _is_in(target, self.claim)) or (
            self.root is not None and self.root.resolve() in target.parents
        )
        if not is_inside:
            raise self._leads_out(path)
        if any(_is_in(target, folder) for folder in self.own):
            raise InvalidModel(f"the link {path} leads into a folder of the adapter's own")

    def _leads_into_another_claim(self, path: Path) -> bool:
        own = None if self.claim is None else self.claim.name
        return self.mounts is not None and any(name != own for name in claims_on_the_way(path, self.mounts))

    def _leads_out(self, path: Path) -> InvalidModel:
        return InvalidModel(f"the link {path} leads out of {self.claim or self.root}; a model's links must stay below it")


def is_there(path: Path) -> bool:
    """Whether anything has this name; the last link is not followed. Raises OSError: the file system cannot tell."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno not in NOT_THERE:
            raise
        return False
    except ValueError:  # no name at all: it has a NUL byte
        return False
    return True


def _followed(path: Path, *, strict: bool) -> Path:
    try:
        return path.resolve(strict=strict)
    except (OSError, RuntimeError) as error:  # Python before 3.13 reports a loop as RuntimeError
        if isinstance(error, OSError) and error.errno not in NOT_THERE:
            raise
        is_loop = isinstance(error, RuntimeError) or error.errno == errno.ELOOP
        raise InvalidModel(f"the link {path} leads {'round in a circle' if is_loop else 'nowhere'}") from error


def _is_in(target: Path, folder: Path) -> bool:
    real = folder.resolve()
    return target == real or real in target.parents
