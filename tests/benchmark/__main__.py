"""`scripts/bench`: what the adapter costs, beside alternatives in the same run; ratios, JSON."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from tests.benchmark.amounts import FULL, QUICK, Amounts
from tests.benchmark.fronts import fronts
from tests.benchmark.lifecycle import lifecycle
from tests.benchmark.machine import described
from tests.benchmark.on_triton import triton
from tests.benchmark.pulls import fair, pull
from tests.benchmark.report import Finding, markdown, told
from tests.benchmark.start import start
from tests.benchmark.unload_beside_inference import beside
from tests.benchmark.whole import whole
from tests.real.children import PartError

PHASES: tuple[Callable[[Amounts], Finding], ...] = (pull, fair, whole, lifecycle, start, triton, beside, fronts)


def main() -> int:
    """0: measured. 1: a client that is there could not be measured."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=(__doc__ or "").splitlines()[0])
    names = [phase.__name__ for phase in PHASES]
    parser.add_argument("phase", nargs="*", choices=[[], *names], metavar="phase", help=f"these alone: {', '.join(names)}")
    parser.add_argument("--quick", action="store_true", help="a little of each, in a few minutes")
    parser.add_argument("--out", type=Path, metavar="FILE", help="everything as JSON, a Markdown table beside it")
    given = parser.parse_args()
    machine, command, findings = described(), shlex.join(["scripts/bench", *sys.argv[1:]]), []
    print("\n".join(f"{name:20} {value}" for name, value in machine.items()))
    for phase in PHASES:
        if given.phase and phase.__name__ not in given.phase:
            continue
        print(f"\n==== {phase.__name__}: {phase.__doc__}", flush=True)
        began = time.monotonic()
        try:
            findings.append(phase(QUICK if given.quick else FULL))
        except PartError as error:
            findings.append(Finding(phase.__name__, phase.__doc__ or "", wrong=[str(error).splitlines()[0]]))
        findings[-1].seconds = time.monotonic() - began
        print(told(findings[-1]), flush=True)
        if given.out:  # after each phase: what was measured is there when a later one fails
            measured = {"command": command, "machine": machine, "phases": [asdict(finding) for finding in findings]}
            given.out.write_text(json.dumps(measured, indent=1) + "\n")
            given.out.with_suffix(".md").write_text(markdown(findings, machine, command))
    return int(any(finding.wrong for finding in findings))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what was begun is ended
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have their jobs in the background ignore it
    sys.exit(main())
