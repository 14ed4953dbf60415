"""
Plants each mistake in a copy of the tree and runs the tests that should find it.

The exit code is 1 when more than one mistake in twenty is missed, or when a test fails without a mistake.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.prove.net.mistakes import MISTAKES, TOP, Mistake

SECONDS, WHOLE_SECONDS = 400, 2400
"""For the tests of one mistake, and for the whole net. A run that takes longer has found nothing."""
WHOLE = ("contract", "fault", "fronts", "integration", "security", "verbs")
"""Folders of tests that are asked where the files of the list stay green."""
MISSED_SHARE = 0.05
LINKED = (".parts", ".venv")


@dataclass(frozen=True)
class Outcome:
    """What came of one mistake."""

    name: str
    found_by: str
    """The test, or empty."""
    said: str
    """The last line of pytest where it was not found."""
    seconds: float


def tried(mistake: Mistake, flaky: Collection[str], *, is_whole: bool) -> Outcome:
    """
    Plant it and run its tests.

    Args:
        mistake: to plant.
        flaky: tests that fail without any mistake; they find nothing.
        is_whole: where the mistake's own files stay green, run the whole net.
    """
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="net-") as folder:
        tree = copied(Path(folder) / "tree")
        path = tree / mistake.file
        path.write_text(mistake.applied(path.read_text()))
        failed, said = ran(tree, ("-x", *mistake.first), SECONDS)
        if is_whole and not set(failed) - set(flaky):
            failed, said = ran(tree, ("-x", "-n", "2", "--dist", "loadfile", *WHOLE), WHOLE_SECONDS)
    found = next((name for name in failed if name not in flaky), "")
    return Outcome(mistake.name, found, "" if found else said, round(time.monotonic() - began, 1))


def failing(names: Collection[str], jobs: int) -> list[str]:
    """Tests of these files that fail where nothing is planted."""
    with tempfile.TemporaryDirectory(prefix="net-") as folder:
        failed, said = ran(copied(Path(folder) / "tree"), ("-n", str(jobs), "--dist", "loadfile", *sorted(names)), WHOLE_SECONDS)
    print(f"without a mistake: {said}", flush=True)
    return failed


def ran(tree: Path, words: Sequence[str], seconds: float) -> tuple[list[str], str]:
    """Run pytest on files below `tests/`; the tests that failed, and the last line."""
    given = [word if word.startswith("-") or not (tree / "tests" / word).exists() else f"tests/{word}" for word in words]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *given]
    environ = {**os.environ, "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return [], f"not over within {seconds} s"
    failed = re.findall(r"^FAILED (\S+::\w+)", done.stdout, re.MULTILINE) if done.returncode == 1 else []
    return failed, (done.stdout.strip().splitlines() or [f"code {done.returncode}"])[-1]


def copied(tree: Path) -> Path:
    """A copy of what the tests need; installed parts are linked."""
    shutil.copytree(TOP, tree, ignore=shutil.ignore_patterns(".git", "__pycache__", "*_cache", *LINKED))
    for name in LINKED:
        (tree / name).symlink_to((TOP / name).resolve())
    return tree


def main(words: Sequence[str] | None = None) -> int:
    """0: enough of them were found."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.net", description=(__doc__ or "").strip().splitlines()[0])
    parser.add_argument("name", nargs="*", help="these alone")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="at once (2)")
    parser.add_argument("--whole", action="store_true", help="run the whole net where the files of the list stay green")
    parser.add_argument("--json", type=Path, metavar="FILE", help="the outcomes as JSON")
    given = parser.parse_args(words)
    chosen = [mistake for mistake in MISTAKES if not given.name or mistake.name in given.name]
    flaky = failing({name for mistake in chosen for name in mistake.first}, given.jobs)
    outcomes = []
    with ThreadPoolExecutor(given.jobs) as pool:
        for outcome in pool.map(lambda mistake: tried(mistake, flaky, is_whole=given.whole), chosen):
            outcomes.append(outcome)
            print(f"{outcome.seconds:6.1f} s  {outcome.name}: {outcome.found_by or f'NOT FOUND ({outcome.said})'}", flush=True)
    missed = [outcome.name for outcome in outcomes if not outcome.found_by]
    print(f"{len(outcomes) - len(missed)} of {len(outcomes)} were found; missed: {', '.join(missed) or 'none'}")
    if given.json:
        given.json.write_text(json.dumps([asdict(outcome) for outcome in outcomes], indent=1) + "\n")
    if flaky:
        print(f"fail without a mistake: {', '.join(flaky)}")
    return int(bool(flaky) or len(missed) > MISSED_SHARE * len(outcomes))


if __name__ == "__main__":
    sys.exit(main())
