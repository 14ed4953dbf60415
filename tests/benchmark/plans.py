"""The plan of a very large model: `test_large_models.py`, shown as it comes."""

from __future__ import annotations

import subprocess
import sys

from tests.benchmark.amounts import Amounts
from tests.benchmark.report import Finding
from tests.benchmark.rig import child_environment
from tests.real.children import TOP

PROGRAM = "tests/benchmark/test_large_models.py"


def plans(_amounts: Amounts) -> Finding:
    """CPU of the plans of very large models, beside sorting their paths."""
    finding = Finding("plans", "plans of 100,000 files")
    command = [sys.executable, "-m", "pytest", "-q", "-m", "benchmark", "-p", "no:cacheprovider", PROGRAM]
    done = subprocess.run(command, cwd=TOP, env=child_environment(), capture_output=True, text=True, check=False)
    finding.notes += [line.lstrip(".").strip() for line in done.stdout.splitlines() if "× sorting" in line]
    if done.returncode:
        finding.wrong.append(f"{PROGRAM} ended with code {done.returncode}")
    return finding
