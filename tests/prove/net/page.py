"""The table of planted mistakes, from the list and the recorded outcomes."""

from __future__ import annotations

import json

from tests.prove.net import MISTAKES
from tests.prove.net.mistakes import TOP

RECORD = TOP / "tests" / "prove" / "net" / "record.json"
"""Written by `python -m tests.prove.net --json`."""


def markdown() -> str:
    """A row for each mistake."""
    outcomes = {each["name"]: each for each in json.loads(RECORD.read_text())}
    rows = ["| mistake | what is planted | found by |", "|---|---|---|"]
    for mistake in MISTAKES:
        found = outcomes.get(mistake.name, {}).get("found_by", "")
        test = f"`{found.removeprefix('tests/').partition('[')[0]}`" if found else "not found"
        rows.append(f"| {mistake.name} | {mistake.what} | {test} |")
    found_count = sum(bool(outcomes.get(mistake.name, {}).get("found_by")) for mistake in MISTAKES)
    minutes = sum(each["seconds"] for each in outcomes.values()) / 60
    return "\n".join([*rows, "", f"{found_count} of {len(MISTAKES)} are found; the tests take {minutes:.0f} minutes of one worker."]) + "\n"
