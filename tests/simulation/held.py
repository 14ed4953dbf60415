"""What the virtual Triton has of one model, and who is connected to it."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol


@dataclass(eq=False)
class Held:
    """One model of this Triton."""

    state: str = ""
    files: dict[str, bytes] | None = None
    """What it serves."""
    placement: int = -1
    """Which directory it was loaded from."""
    is_taken: bool = False
    waiting: list[asyncio.Future[None]] = field(default_factory=list)


def files_below(folder: Path) -> dict[str, bytes]:
    """What a directory holds, by path; links are followed."""
    found: dict[str, bytes] = {}
    for place, _, names in os.walk(folder, followlinks=True):
        for name in names:
            found[os.path.relpath(os.path.join(place, name), folder)] = Path(place, name).read_bytes()
    return found


class Client(Protocol):
    """Who is connected."""

    loads: Counter[str]
    is_connected: bool
