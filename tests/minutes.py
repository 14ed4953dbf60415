"""What a run of the tests took, folder by folder: a record that `tests/README.md` shows as a table."""

from __future__ import annotations

import json
import platform
import subprocess
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
    """The committed record as a table."""
    record: dict[str, Any] = json.loads(RECORD.read_text())
    folders: dict[str, dict[str, Any]] = record["folders"]
    minutes = record["seconds"] / 60
    rows = ["| folder | cases | minutes of one worker |", "|---|---|---|"]
    cases = {name: sum(count for key, count in found.items() if key != "seconds") for name, found in folders.items()}
    rows += [f"| `{name}/` | {cases[name]:,} | {found['seconds'] / 60:.1f} |" for name, found in folders.items()]
    together = sum(found["seconds"] for found in folders.values()) / 60
    rows.append(f"| together | {sum(cases.values()):,} | {together:.1f}; {minutes:.1f} on the clock |")
    rows += ["", f"Recorded on {record['date']} at commit `{record['commit']}`, Python {record['python']}, two cores."]
    return "\n".join(rows) + "\n"
