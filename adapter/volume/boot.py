"""
Which boot of the kernel this is, and how long ago it was.

What is on a disk without fsync outlives every process, but not the kernel: so a reader compares the boot.
"""

from __future__ import annotations

import secrets
import time
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def boot_id() -> str:
    """
    Another one after each boot of the kernel; the same in all containers of the machine.

    Where the kernel does not tell it, another one for each process: nothing that is left of an earlier one is believed then.
    Source: Linux `Documentation/admin-guide/sysctl/kernel.rst`, `random`.
    """
    try:
        return _BOOT_ID.read_text().strip()
    except (OSError, UnicodeDecodeError):
        return f"unknown-{secrets.token_hex(16)}"


def boot_seconds() -> float:
    """Seconds since the boot of the kernel, sleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
