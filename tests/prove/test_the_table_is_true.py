"""`scripts/prove` says that all holds only where something was tried and nothing was lost, and writes the table whatever happens."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.prove import __main__ as program
from tests.prove import phases
from tests.prove.report import Proof, Row, markdown, read, rows_of, told

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


def test_the_file_has_every_row_and_what_is_wrong() -> None:
    text = markdown({"adapter": proof(Row("a|b", 2, 1, 1), wrong=["it grows"], seconds=90.0, commit="abc", date="2026-01-02")})

    assert "| `adapter` | 2 | 1 | 1 | **no** | 1.5 | `abc` | 2026-01-02 |" in text
    assert "| a\\|b | 2 | 1 | 1 |" in text
    assert "- it grows" in text


@pytest.mark.parametrize(("row", "code"), [(Row("killed", 3, 3, 0), 0), (Row("killed", 3, 2, 1), 1)])
def test_the_exit_code_tells_and_the_phases_that_were_named_ran_alone(
    row: Row, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = phases_that_give(row, monkeypatch)
    out = tmp_path / "report.md"

    assert program.main(["fuzz", "soak", "--quick", "--out", str(out)]) == code
    assert ran == [("fuzz", program.QUICK["fuzz"]), ("soak", program.QUICK["fuzz"])]
    assert ("killed" in out.read_text()) is (code == 1)  # what holds has one line
    assert "killed" in out.with_suffix(".json").read_text()
    assert f"lost: {2 * row.lost};" in capsys.readouterr().out


def test_a_run_that_goes_on_leaves_out_what_holds_at_this_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "report.md"
    monkeypatch.setattr(program, "_commit", lambda: "abc")
    ran = phases_that_give(Row("killed", 3, 3, 0), monkeypatch)
    resume = ["--resume", "--quick", "--out", str(out)]

    program.main(["soak", *resume])
    program.main(resume)
    assert [name for name, _ in ran] == ["soak", "triton", "fuzz"]
    program.main(["soak", *resume, "--fuzz", "9"])
    monkeypatch.setattr(program, "_commit", lambda: "abd")
    program.main(["triton", *resume])
    assert [name for name, _ in ran[3:]] == ["soak", "triton"]
    kept = read(out.with_suffix(".json"))
    assert {name: each.commit for name, each in kept.items()} == {"triton": "abd", "fuzz": "abc", "soak": "abc"}
    assert capsys.readouterr().out.count("holds already") == 1


def test_a_phase_that_does_not_hold_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program, "_commit", lambda: "abc")
    ran = phases_that_give(Row("killed", 3, 2, 1), monkeypatch)

    for _ in range(2):
        assert program.main(["soak", "--resume", "--out", str(tmp_path / "report.md")]) == 1
    assert [name for name, _ in ran] == ["soak", "soak"]


def test_every_long_test_belongs_to_a_phase() -> None:
    """A test that `scripts/test` leaves out and no phase runs would prove nothing."""
    folders = {word for _, words in phases.SUITES.values() for word in words if word.startswith("tests/")}
    others = {"tests/fault/test_triton_comes_back.py", "tests/fuzz"}
    files = [path for path in Path(phases.TOP, "tests").rglob("test_*.py") if "mark.long" in path.read_text() and path != Path(__file__)]

    named = [path.relative_to(phases.TOP).as_posix() for path in files]
    assert [name for name in named if not any(name.startswith(folder) for folder in folders | others)] == []


def phases_that_give(row: Row, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """Three phases, and which of them ran, with how many examples."""
    ran: list[tuple[str, int]] = []

    def phase(name: str) -> object:
        return lambda amounts: ran.append((name, amounts.fuzz)) or proof(row)

    monkeypatch.setattr(program, "PHASES", {name: phase(name) for name in ("triton", "fuzz", "soak")})
    return ran


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


def test_tables_of_tests_become_rows_and_skipped_tests_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tables = {"kill -9, over the real Triton": [{"fault": "in a load", "tried": 3, "survived": 3, "lost": 0}, {"output": "not a fault"}]}
    programs(
        monkeypatch,
        tmp_path,
        f"open(words[words.index('--tables') + 1], 'w').write({json.dumps(tables)!r})\nprint('SKIPPED [1] x.py: no Triton here')",
    )
    found = phases.triton(AMOUNTS)

    assert found.rows == [Row("in a load, over the real Triton", 3, 3, 0)]
    assert found.notes == ["kill -9, over the real Triton"]
    assert found.wrong == ["SKIPPED [1] x.py: no Triton here"]


def test_each_file_of_a_suite_becomes_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = "<testcase classname='tests.chart.{}'/>", "<testcase classname='tests.chart.{}'><failure/></testcase>"
    cases = good.format("a") + bad.format("a") + good.format("b")
    programs(
        monkeypatch,
        tmp_path,
        f"(file,) = (word[11:] for word in words if word.startswith('--junitxml='))\n"
        f"open(file, 'w').write({f'<x>{cases}</x>'!r})\nsys.exit(1)",
    )
    found = phases.PHASES["chart"](AMOUNTS)

    assert found.rows == [Row("chart.a", 2, 1, 1), Row("chart.b", 1, 1, 0)]
    assert not found.holds
