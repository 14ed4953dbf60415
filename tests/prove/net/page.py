"""The table of planted mistakes, from the list and the recorded outcomes."""

from __future__ import annotations

import json
from collections import Counter

from tests.prove.net.mistakes import MISTAKES, TOP

RECORD = TOP / "tests" / "prove" / "net" / "record.json"
"""Written by `python -m tests.prove.net --json`."""


def markdown() -> str:
    """A row for each package with its numbers of mistakes, and the names of those that no test finds."""
    found_by = {each["name"]: each["found_by"] for each in json.loads(RECORD.read_text())}
    missed = [mistake for mistake in MISTAKES if not found_by.get(mistake.name)]
    planted, not_found = (Counter(mistake.package for mistake in some) for some in (MISTAKES, missed))
    rows = ["| package | planted | found |", "|---|---|---|"]
    rows += [f"| `{package}` | {count} | {count - not_found[package]} |" for package, count in sorted(planted.items())]
    names = ", ".join(mistake.name for mistake in missed) or "none"
    return "\n".join([*rows, "", f"{len(MISTAKES) - len(missed)} of {len(MISTAKES)} are found; not found: {names}."]) + "\n"
