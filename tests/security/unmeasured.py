"""Children whose memory or time is the point: coverage would add its own to both. And what the kernel says of memory."""

from __future__ import annotations

import ctypes
import gc
import os
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).parents[2]


def run(*arguments: str, lines: str | None = None, **environ: str) -> subprocess.CompletedProcess[str]:
    """Python with these arguments and this input, from the top, with further variables; what it prints comes back. At most 110 s."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE_")} | environ
    return subprocess.run(
        [sys.executable, *arguments], input=lines, env=environment, cwd=TOP, capture_output=True, text=True, check=False, timeout=110
    )


def mib(row: str, pid: int | str = "self") -> float:
    """Of a process: `VmRSS` is resident now, `VmHWM` was at most."""
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{row}:")[2].split()[0]) / 1024


def forget_peak(pid: int | str = "self") -> float:
    """The peak begins anew (proc(5), clear_refs); what is resident now, in MiB."""
    if pid == "self":
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
    Path(f"/proc/{pid}/clear_refs").write_text("5")
    return mib("VmRSS", pid)
