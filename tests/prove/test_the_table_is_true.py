"""`scripts/prove` says that all holds only where something was tried and nothing was lost, and writes the table whatever happens."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.prove import phases
from tests.prove.report import Proof, Row, rows_of, told

AMOUNTS = phases.Amounts(seeds=10, first_seed=0, traffic_seconds=1, fuzz=1, soak=9, soak_real=9, seed=1, jobs=1)


def proof(*rows: Row, **fields: object) -> Proof:
    return Proof("kills", "scripts/test x", list(rows), **fields)


def test_a_lost_model_is_a_loss_and_one_that_is_given_up_by_design_is_none() -> None:
    lost = proof(Row("killed", 5, 4, 1))
    given_up = proof(Row("killed twice", 5, 0, 5, "as designed: said to be"))

    assert (lost.lost, lost.holds) == (1, False)
    assert (given_up.lost, given_up.holds) == (0, True)
    assert rows_of(given_up)[0]["lost"] == "0 (5 given up)"
    assert "DOES NOT HOLD" in told(lost)


def test_nothing_tried_or_something_wrong_is_no_proof() -> None:
    assert not proof().holds
    assert not proof(Row("killed", 1, 1, 0), wrong=["pytest ended with code 2"]).holds


def test_every_long_test_belongs_to_a_phase() -> None:
    """A test that `scripts/test` leaves out and no phase runs would prove nothing."""
    folders = {word for _, words in phases.SUITES.values() for word in words if word.startswith("tests/")}
    others = {"tests/fault/test_triton_comes_back.py", "tests/fuzz"}
    files = [path for path in Path(phases.TOP, "tests").rglob("test_*.py") if "mark.long" in path.read_text() and path != Path(__file__)]

    named = [path.relative_to(phases.TOP).as_posix() for path in files]
    assert [name for name in named if not any(name.startswith(folder) for folder in folders | others)] == []


def programs(monkeypatch: pytest.MonkeyPatch, folder: Path, source: str) -> None:
    """What the phases run, whatever they ask for."""
    script = folder / "python"
    script.write_text(f"#!{sys.executable}\nimport json, sys\nwords = sys.argv[1:]\n{source}\n")
    script.chmod(0o755)
    monkeypatch.setattr(phases.sys, "executable", str(script))


def test_seeds_that_failed_are_lost_with_the_line_that_replays_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(
        monkeypatch,
        tmp_path,
        "print('FAILED: python -m tests.simulation --seed 7 --trace')\n"
        "print('10 seeds in 1.0 s (10 each second): 1 failed [7]')\nsys.exit(1)",
    )
    found = phases.simulation(AMOUNTS)

    assert found.rows == [Row("seeds", 10, 9, 1)]
    assert found.wrong == ["FAILED: python -m tests.simulation --seed 7 --trace"]


def test_a_program_that_dies_is_no_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(monkeypatch, tmp_path, "sys.exit(3)")

    for name, phase in phases.PHASES.items():
        if name == "coverage":  # no program of Python
            continue
        found = phase(AMOUNTS)
        assert not found.holds
        assert found.wrong
