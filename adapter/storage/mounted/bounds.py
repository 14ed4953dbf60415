"""
Where the links of a model may lead.

A link is followed to its end, as the kernel does for Triton; what counts is where that end lies, not
how it is written. Blocks; runs in threads.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass, replace
from pathlib import Path

from adapter.errors import InvalidModel


@dataclass(frozen=True)
class Bounds:
    """Folders that a model may lie in."""

    claim: Path | None = None
    """The model may be all of it."""
    root: Path | None = None
    """ROOT_MODEL_DIR: below it only, and not in the adapter's own folders."""
    own: tuple[Path, ...] = ()
    """The adapter's own folders: no model is made of another model's placed files."""

    def check(self, path: Path, *, may_be_absent: bool = False) -> None:
        """
        Follow the links of a path to the end, and see that it lies inside.

        Raises:
            InvalidModel: it leads out, nowhere (unless that may be), round in a circle, or into a folder of ours.
        """
        target = _followed(path, strict=not may_be_absent)
        is_inside = (self.claim is not None and _is_in(target, self.claim)) or (
            self.root is not None and self.root.resolve() in target.parents
        )
        if not is_inside:
            raise InvalidModel(f"the link {path} leads out of {self.claim or self.root}; a model's links must stay below it")
        if any(_is_in(target, folder) for folder in self.own):
            raise InvalidModel(f"the link {path} leads into a folder of the adapter's own")

    def with_claim_of(self, path: Path, mounts: Path) -> Bounds:
        """These bounds, and the claim below the mounts that the path itself leads into."""
        target, real_mounts = _followed(path, strict=True), mounts.resolve()
        if real_mounts not in target.parents:
            return self
        return replace(self, claim=mounts / target.relative_to(real_mounts).parts[0])


def _followed(path: Path, *, strict: bool) -> Path:
    try:
        return path.resolve(strict=strict)
    except (OSError, RuntimeError) as error:  # Python before 3.13 reports a loop as RuntimeError
        is_loop = isinstance(error, RuntimeError) or error.errno == errno.ELOOP
        raise InvalidModel(f"the link {path} leads {'round in a circle' if is_loop else 'nowhere'}") from error


def _is_in(target: Path, folder: Path) -> bool:
    real = folder.resolve()
    return target == real or real in target.parents
