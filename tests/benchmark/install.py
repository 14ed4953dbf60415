"""
Puts the alternatives into `.parts/peers`, a venv of their own, and builds the adapter in Go: `python -m tests.benchmark.install`.

Their versions are in `scripts/constraints.txt` like all others. A machine for which one has no wheel goes without both;
what is missing is not measured, and the output says so.
"""

from __future__ import annotations

import sys
from collections.abc import Collection
from pathlib import Path

from tests.benchmark.go_adapter import go_adapter
from tests.benchmark.rig import OF_THEIR_VENV, PEERS_PYTHON
from tests.real import parts
from tests.real.children import TOP
from tests.real.install import pip_install

CONSTRAINTS = TOP / "scripts" / "constraints.txt"


def pins(names: Collection[str]) -> list[str]:
    """Of these packages, as pip reads them."""
    return [line for line in CONSTRAINTS.read_text().splitlines() if line.partition("==")[0] in names]


def peers() -> Path:
    """Instant when all is there. Raises CannotRunError."""
    own = pins(OF_THEIR_VENV)
    pip = [*pip_install(PEERS_PYTHON), "-c", str(CONSTRAINTS)]
    return parts.put("peers", ", ".join(own), "it", [sys.executable, "-m", "venv", "."], [*pip, *own])


if __name__ == "__main__":
    parts.install(peers, go_adapter)
