"""How much memory this container may have, where nobody says it: its control group's limit, or all that the machine has."""

from __future__ import annotations

import os
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
LIMITS = ("memory.max", "memory/memory.limit_in_bytes")
"""Of a container's own control group, of version 2 and of version 1. Source: the kernel's `cgroup-v2.rst` and `cgroup-v1/memory.rst`."""


def memory_bytes(groups: Path = GROUPS) -> int:
    """Bytes; a limit above what the machine has, or none (`max`), counts for nothing."""
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min(machine, *(_limit(groups / name, machine) for name in LIMITS))


def _limit(path: Path, otherwise: int) -> int:
    try:
        return int(path.read_text().strip()) or otherwise
    except (OSError, ValueError):  # another version of control groups, or `max`
        return otherwise
