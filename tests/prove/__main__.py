"""`scripts/prove`: everything is tried, and the table says what was lost; exit code 1 when something was."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.prove.phases import FULL, PHASES, QUICK, TOP
from tests.prove.report import markdown, read, told, write


def main(words: Sequence[str] | None = None) -> int:
    """0: nothing was lost. 1: something was, or a phase could not run."""
    parser = argparse.ArgumentParser(prog="scripts/prove", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("phase", nargs="*", help=f"these alone: {', '.join(PHASES)}")
    parser.add_argument("--quick", action="store_true", help="a little of each, in minutes")
    parser.add_argument("--out", type=Path, default=Path("prove-report.md"), metavar="FILE", help="the table as Markdown (prove-report.md)")
    parser.add_argument("--resume", action="store_true", help="leave out what the table shows to hold at this commit")
    given = parser.parse_args(words)
    if unknown := [name for name in given.phase if name not in PHASES]:
        parser.error(f"there is no phase {unknown[0]!r}; there are {', '.join(PHASES)}")
    amounts = QUICK if given.quick else FULL
    record, commit, ran = given.out.with_suffix(".json"), _commit(), []
    proofs = read(record)
    for name in [each for each in PHASES if not given.phase or each in given.phase]:
        earlier = proofs.get(name)
        if given.resume and earlier and earlier.holds and (earlier.commit, earlier.amounts) == (commit, str(amounts)):
            print(f"==== {name}: holds already")
            continue
        proofs[name] = proof = PHASES[name](amounts)
        ran.append(proof)
        proof.commit, proof.date, proof.amounts = commit, datetime.now(UTC).strftime("%Y-%m-%d"), str(amounts)
        proofs = {each: proofs[each] for each in PHASES if each in proofs}
        write(proofs, record)
        given.out.write_text(markdown(proofs))
    print("\n" + "\n\n".join(told(proof) for proof in ran))
    held = all(proof.holds for proof in ran)
    print(f"\nlost: {sum(proof.lost for proof in ran)}; {'everything holds' if held else 'NOT EVERYTHING HOLDS'}; the table: {given.out}")
    return 0 if held else 1


def _commit() -> str:
    """The short name of what is checked out; files of the record itself are no change."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=TOP, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--", ".", ":!tests/prove/record.*", ":!tests/prove/net/record.json")
    return git("rev-parse", "--short", "HEAD") + ("+" if changed else "")


if __name__ == "__main__":
    sys.exit(main())
