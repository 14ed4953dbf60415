"""`scripts/bench`: what the adapter costs, beside alternatives in the same run; ratios, JSON."""

from __future__ import annotations

import argparse
import json
import shlex
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.benchmark.amounts import ALTERNATIVES, Amounts
from tests.benchmark.fronts import fronts
from tests.benchmark.lifecycle import lifecycle
from tests.benchmark.machine import described
from tests.benchmark.on_triton import triton
from tests.benchmark.pulls import fair, pull
from tests.benchmark.report import Finding, markdown, to_json, told
from tests.benchmark.rig import PEERS_PYTHON, Place
from tests.benchmark.start import start
from tests.benchmark.unload_beside_inference import beside
from tests.benchmark.whole import whole

PHASES: dict[str, Callable[[Amounts], Finding]] = {
    "pull": pull,
    "fair": fair,
    "whole": whole,
    "lifecycle": lifecycle,
    "start": start,
    "triton": triton,
    "beside": beside,
    "fronts": fronts,
}
FULL = {"rounds": 3, "size": "2GiB", "files": 1000, "light_models": 1000, "known": (10, 5000)}
QUICK = {"rounds": 1, "size": "256MiB", "files": 300, "light_models": 50, "known": (10, 300)}
MEANING = {
    "rounds": (int, "of which medians are taken"),
    "size": (str, "of the large object"),
    "files": (int, "of 64 KiB"),
    "light_models": (int, "on the real Triton"),
}


def main(words: Sequence[str] | None = None) -> int:
    """0: measured. 1: a client that is there could not be measured."""
    parser = argparse.ArgumentParser(prog="scripts/bench", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("phase", nargs="*", help=f"these alone: {', '.join(PHASES)}")
    parser.add_argument("--quick", action="store_true", help="a little of each, in a few minutes")
    for name, (kind, meaning) in MEANING.items():
        option = f"--{name.replace('_', '-')}"
        parser.add_argument(option, type=kind, metavar="N", help=f"{meaning} ({FULL[name]}; {QUICK[name]} with --quick)")
    names = ", ".join(client.name for client in ALTERNATIVES)
    parser.add_argument("--client", action="append", default=[], metavar="NAME", help=f"alternatives: {names}")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="where files are pulled to")
    parser.add_argument("--peers", type=Path, default=PEERS_PYTHON, metavar="PYTHON", help="of a venv with awscrt and pycurl")
    parser.add_argument("--out", type=Path, metavar="FILE", help="everything as JSON, a Markdown table beside it")
    given = parser.parse_args(words)
    if unknown := [name for name in given.phase if name not in PHASES]:
        parser.error(f"there is no phase {unknown[0]!r}; there are {', '.join(PHASES)}")
    if unknown := [name for name in given.client if name not in {client.name for client in ALTERNATIVES}]:
        parser.error(f"there is no alternative {unknown[0]!r}; there are {names}")
    usual = QUICK if given.quick else FULL
    chosen: dict[str, Any] = {name: getattr(given, name, None) or amount for name, amount in usual.items()}
    place = Place(given.folder.absolute(), given.peers.absolute())  # clients run elsewhere
    amounts = Amounts(place, clients=tuple(given.client), **chosen)
    machine = described(amounts.place, amounts.peers)
    command = shlex.join(["scripts/bench", *(sys.argv[1:] if words is None else words)])
    print("\n".join(f"{name:20} {value}" for name, value in machine.items()))
    print()
    findings = []
    for name, phase in PHASES.items():
        if given.phase and name not in given.phase:
            continue
        print(f"==== {name}: {(phase.__doc__ or '').splitlines()[0]}", flush=True)
        began = time.monotonic()
        findings.append(phase(amounts))
        findings[-1].seconds = time.monotonic() - began
        print(f"{told(findings[-1])}\n", flush=True)
        _write(given, findings, machine, command)
    return int(any(finding.wrong for finding in findings))


def _write(given: argparse.Namespace, findings: list[Finding], machine: dict[str, str], command: str) -> None:
    """After each phase, so that what was measured is there when a later one fails."""
    if given.out:
        given.out.write_text(json.dumps(to_json(findings, machine, command), indent=1) + "\n")
        given.out.with_suffix(".md").write_text(markdown(findings, machine, command))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that what was begun is ended
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have their jobs in the background ignore it
    sys.exit(main())
