"""What a run of the tests took, folder by folder: a record that `tests/README.md` sums up."""

from __future__ import annotations

import json
import platform
import subprocess
import textwrap
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).resolve().parents[1]
RECORD = TOP / "tests" / "minutes.json"
"""The record that is committed."""


class Minutes:
    """A plugin of pytest: seconds and cases of each folder, written to a file when the run has ended."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._began = time.monotonic()
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._outcomes: dict[str, Counter[str]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add one phase of one test: its fixtures count, too."""
        folder = report.nodeid.split("/")[1] if report.nodeid.startswith("tests/") else "."
        self._seconds[folder] += report.duration
        outcomes = self._outcomes.setdefault(folder, Counter())
        if report.when == "call" or report.outcome != "passed":
            outcomes[report.outcome] += 1

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=TOP, capture_output=True, text=True, check=False
        ).stdout.strip()
        record = {
            "commit": commit,
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "python": platform.python_version(),
            "seconds": round(time.monotonic() - self._began),
            "folders": {name: {"seconds": round(self._seconds[name], 1), **self._outcomes[name]} for name in sorted(self._outcomes)},
        }
        self._path.write_text(json.dumps(record, indent=1) + "\n")


def markdown() -> str:
    """The committed record as sentences: the whole run, and minutes of one worker for each folder that takes more than one."""
    record: dict[str, Any] = json.loads(RECORD.read_text())
    folders: dict[str, dict[str, Any]] = record["folders"]
    cases = sum(count for found in folders.values() for key, count in found.items() if key != "seconds")
    minutes = {name: found["seconds"] / 60 for name, found in folders.items()}
    long = sorted((name for name in folders if minutes[name] > 1), key=lambda name: -minutes[name])
    text = (
        f"{cases:,} cases take {sum(minutes.values()):.0f} minutes of one worker, {record['seconds'] / 60:.1f} minutes on the clock: "
        f"{', '.join(f'`{name}/` {minutes[name]:.1f}' for name in long)}. "
        f"Recorded on {record['date']} at commit `{record['commit']}`, Python {record['python']}, two cores."
    )
    return textwrap.fill(text, 120, break_on_hyphens=False) + "\n"
