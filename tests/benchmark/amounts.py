"""How much of each."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Amounts:
    """Of a whole run."""

    rounds: int
    size: str
    """Of the large object."""
    files: int
    """Of 64 KiB."""
    light_models: int
    """On the real Triton."""
    known: tuple[int, ...]
    """Models, for the own time of a load."""


FULL = Amounts(3, "2GiB", 1000, 1000, (10, 5000))
QUICK = Amounts(1, "256MiB", 300, 50, (10, 300))
