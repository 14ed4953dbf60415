"""
Version directories of a model, and which of them Triton will serve.

Owns the rule for their names. Triton reads a name with `stoll`, which takes `1abc` for 1, aborts the
server on a number of 20 digits, and leaves the python backend hanging on `-1`: such names never get
there. Pure: knows names and numbers, no files.

Source: Triton core `ModelRepositoryManager`/`ModelLifeCycle::VersionsToLoad`, and `triton-semantics` §1.2.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_VERSION = re.compile(r"0|[1-9][0-9]{0,17}")


def is_version(name: str) -> bool:
    """Whether Triton reads this directory name as exactly this number."""
    return _VERSION.fullmatch(name) is not None


def is_odd(name: str) -> bool:
    """Whether the name begins as a number would and is no version: Triton would misread or ignore it."""
    digits = name.strip()
    if digits[:1] in ("+", "-"):
        digits = digits[1:]
    return digits[:1].isdigit() and not is_version(name)


def newest(names: Iterable[str]) -> str:
    """The highest of some version names."""
    return max(names, key=int)


@dataclass(frozen=True)
class VersionPolicy:
    """What `version_policy` says. Neither field set means all versions."""

    latest: int | None = 1
    """How many of the highest numbers are served; Triton's default is one."""
    specific: tuple[int, ...] | None = None

    def served(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of the existing versions that Triton loads, highest first."""
        existing = sorted(names, key=int, reverse=True)
        if self.specific is not None:
            return tuple(name for name in existing if int(name) in self.specific)
        return tuple(existing if self.latest is None else existing[: self.latest])

    def __str__(self) -> str:
        if self.specific is not None:
            return f"specific versions {', '.join(map(str, self.specific)) or '(none)'}"
        return "all versions" if self.latest is None else f"the latest {self.latest}"
