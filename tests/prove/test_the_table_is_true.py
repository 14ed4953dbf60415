"""`scripts/prove` says that all holds only where something was tried and nothing was lost, and writes the table whatever happens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.prove import __main__ as program
from tests.prove import phases
from tests.prove.report import Proof, Row, markdown, rows_of, told

AMOUNTS = phases.Amounts(seeds=10, first_seed=0, kills=1, traffic_kills=1, fuzz=1, soak=9, soak_real=9, seed=1, jobs=1)


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


def test_the_file_has_every_row_and_what_is_wrong() -> None:
    text = markdown([proof(Row("a|b", 2, 1, 1), wrong=["it grows"])], "scripts/prove", "now")

    assert "| kills | 2 | 1 | 1 | **no** |" in text
    assert "| a\\|b | 2 | 1 | 1 |" in text
    assert "- it grows" in text


@pytest.mark.parametrize(("row", "code"), [(Row("killed", 3, 3, 0), 0), (Row("killed", 3, 2, 1), 1)])
def test_the_exit_code_tells_and_the_phases_that_were_named_ran_alone(
    row: Row, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def phase(name: str) -> object:
        return lambda amounts: ran.append((name, amounts.kills)) or proof(row)

    monkeypatch.setattr(program, "PHASES", {name: phase(name) for name in ("triton", "adapter", "soak")})
    out = tmp_path / "report.md"

    assert program.main(["adapter", "soak", "--quick", "--out", str(out)]) == code
    assert ran == [("adapter", program.QUICK["kills"]), ("soak", program.QUICK["kills"])]
    assert "killed" in out.read_text()
    assert f"lost: {2 * row.lost};" in capsys.readouterr().out


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

    for phase in phases.PHASES.values():
        found = phase(AMOUNTS)
        assert not found.holds
        assert found.wrong


def test_tables_of_tests_become_rows_and_skipped_tests_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"kill -9, over the real Triton": [{"fault": "in a load", "tried": 3, "survived": 3, "lost": 0}, {"output": "not a fault"}]}
    programs(
        monkeypatch,
        tmp_path,
        f"open(words[words.index('--tables') + 1], 'w').write({json.dumps(tables)!r})\nprint('SKIPPED [1] x.py: no Triton here')",
    )
    found = phases.adapter(AMOUNTS)

    assert found.rows == [Row("in a load, over the real Triton", 3, 3, 0)]
    assert found.notes == ["kill -9, over the real Triton"]
    assert found.wrong == ["SKIPPED [1] x.py: no Triton here"]
