"""Histories of the adapter in virtual time: whatever happens, every rule of `history` holds. See `tests/simulation/README.md`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.mistakes import MISTAKES

ROOT = Path(__file__).parents[2]
SEEDS = 40
MANY_SEEDS = 500
SEEDS_FOR_A_MISTAKE = 1000
QUICK_MISTAKES = (
    "a user of an artifact is not released",
    "an unload is answered before the memory is free",
    "the journal is not awaited",
)
"""Those that the first seeds find; `scripts/prove plants` tries all."""
SECONDS = 1500
"""A machine that does much else needs many times what this one needs alone."""
MET = (
    "3 models of a front's", "READY", "a claim hangs beside others", "a defect after remove",
    "a defect before place", "a defect before tell in a purge", "a front is told at once",
    "a load hangs beside others", "a store hangs beside others", "adapter killed at work",
    "adapter killed in the middle of a write", "adapter killed in load, loading",
    "adapter killed in load, pulling", "adapter killed in unload, unloading", "bad load",
    "cancel in any step", "claim hung", "connection cut", "deadly load", "drain", "endless load",
    "index met a bad entry", "load: BudgetExceeded", "load: CrashesTriton", "load: DiskFull",
    "load: Superseded", "no capacity for a front's model", "restore", "slow index", "store away",
    "store silent", "triton hung", "triton killed in a load", "unload: UnloadUnfinished", "wrong Triton",
)  # fmt: skip
"""What the histories have met at least once: a simulation of a quiet world would prove nothing."""


def _simulated(*arguments: str) -> subprocess.CompletedProcess[str]:
    """
    In a process of its own: the order of sets, which differs from process to process, is a part of each history.

    Its lines are not measured: that takes as long as the histories themselves.
    """
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
    return subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True, timeout=SECONDS, check=False)


def test_no_history_breaks_a_rule() -> None:
    ended = _simulated("--seeds", str(SEEDS))

    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]


@pytest.mark.long
@pytest.mark.timeout(SECONDS)
def test_no_history_of_many_breaks_a_rule_and_all_kinds_of_trouble_were_met() -> None:
    ended = _simulated("--seeds", str(MANY_SEEDS), "--jobs", str(min(os.cpu_count() or 1, 4)))

    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    met = set(re.findall(r"^ +[0-9]+  (.+)$", ended.stdout, re.MULTILINE))
    assert set(MET) <= met


def test_one_seed_decides_everything() -> None:
    """Otherwise a failure could not be looked at twice."""
    traces = [_simulated("--seed", "7", "--trace").stdout for _ in range(2)]

    assert traces[0] == traces[1]
    assert len(traces[0].splitlines()) > 40


@pytest.mark.timeout(SECONDS)
@pytest.mark.parametrize(
    "mistake",
    [pytest.param(each, marks=[] if each in QUICK_MISTAKES else pytest.mark.long) for each in sorted({*MISTAKES, *QUICK_MISTAKES})],
)
def test_a_planted_mistake_is_found_and_told_with_the_line_that_repeats_it(mistake: str) -> None:
    ended = _simulated("--plant", mistake, "--seeds", str(SEEDS_FOR_A_MISTAKE))

    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-4000:]
    assert re.search(rf"python -m tests\.simulation --seed \d+ --trace --plant '{mistake}'", ended.stdout)
