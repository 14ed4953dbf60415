"""`python -m tests.soak`: a long run, and its curves as a table; exit code 1 when one of them grows."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from pathlib import Path

from tests.prove.report import columns
from tests.real.install import CannotRunError
from tests.soak.curves import grown
from tests.soak.soak import RIGS, soaked


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description="Loads and unloads for a long time; nothing may grow.")
    parser.add_argument("--triton", choices=RIGS, default="fake", help="which Triton")
    parser.add_argument("--cycles", type=int, default=5_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="a file for the outcome, for other programs")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        try:
            outcome = asyncio.run(
                soaked(
                    given.triton, given.cycles, Path(folder), seed=given.seed, tell=lambda line: print(line, file=sys.stderr, flush=True)
                )
            )
        except CannotRunError as reason:
            print(f"soak: the {given.triton} Triton cannot run here: {reason}", file=sys.stderr)
            return 2
    wrong = [*grown(outcome.curves), *outcome.problems]
    print(f"{outcome.note}\n\n{columns([curve.row() for curve in outcome.curves])}\n")
    print("\n".join(wrong) or "nothing grows, and nothing is left")
    if given.json:
        rows = [curve.row() for curve in outcome.curves]
        given.json.write_text(json.dumps({"note": outcome.note, "rows": rows, "wrong": wrong, "cycles": outcome.cycles}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
