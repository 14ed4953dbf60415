"""Children whose memory or time is the point: coverage would add its own to both."""

from __future__ import annotations

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
