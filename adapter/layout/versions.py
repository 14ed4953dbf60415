"""
Version directories of a model, and which of them Triton will serve.

Owns the rule for their names. Triton reads a name with `stoll`, which takes `1abc` for 1, aborts the
server on a number beyond 64 bits, and leaves the python backend hanging on `-1`: such names never get
there. Pure: knows names and numbers, no files.

Source: Triton core `ModelLifeCycle::VersionsToLoad` and `GetSubdirs`' callers in `model_repository_manager.cc`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

RULE = f"a version is a number from 0 to {2**63 - 1} without sign or leading zeros"
_LONGEST = len(str(2**63 - 1))
_VERSION = re.compile(rf"0|[1-9][0-9]{{0,{_LONGEST - 1}}}")


def is_version(name: str) -> bool:
    """Whether Triton reads this directory name as exactly this number."""
    return _VERSION.fullmatch(name) is not None and int(name) < 2**63


def is_odd(name: str) -> bool:
    """Whether the name begins as a number would and is no version: Triton would misread or ignore it."""
    digits = name.strip()
    if digits[:1] in ("+", "-"):
        digits = digits[1:]
    return digits[:1].isdigit() and not is_version(name)


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
            wanted = frozenset(self.specific)
            return tuple(name for name in existing if int(name) in wanted)
        return tuple(existing if self.latest is None else existing[: self.latest])

    def __str__(self) -> str:
        if self.specific is not None:
            return f"specific versions {', '.join(map(str, self.specific)) or '(none)'}"
        return "all versions" if self.latest is None else f"the latest {self.latest}"
