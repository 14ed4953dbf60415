"""Ratios and tables of the benchmark, without measuring anything."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.benchmark import __main__ as command
from tests.benchmark import install
from tests.benchmark.amounts import Amounts
from tests.benchmark.contest import Entry, Rule, contest
from tests.benchmark.gauge import MIB, Figures, Job
from tests.benchmark.report import Finding, Row, rows_of
from tests.benchmark.rig import OF_THEIR_VENV, BenchServer, Client, Network, Place
from tests.real.children import TOP
from tests.real.polls import until

RATE = Rule(lambda figures: 8 / figures.seconds, "MiB/s")


def test_a_contest_takes_medians_and_leaves_out_whoever_fails(tmp_path: Path) -> None:
    seconds = iter([4.0, 1.0, 2.0])

    def measured(job: Job, _place: Place) -> Figures:
        item = next(iter(job.keys))
        (Path(job.folder) / item[0]).write_bytes(server.items[item[0]].content())
        return Figures(seconds=next(seconds))

    def breaks(_job: Job, _place: Place) -> Figures:
        raise RuntimeError("it\nbroke")

    finding = Finding("pull", "one object")
    with BenchServer(Network("near"), ["o=1MiB"]) as server:
        entries = [Entry(Client("ours", measured), server, "o"), Entry(Client("bad", breaks), server, "o")]
        entries.append(Entry(Client("absent", breaks, lambda _: False), server, "o"))
        found = contest(finding, "near", Place(tmp_path), entries, RATE, 3)

    assert list(found) == ["ours"]
    assert [(row.client, row.value, row.low, row.high) for row in finding.rows] == [("ours", 4, 2, 8)]
    assert finding.wrong == ["near: bad: it / broke"]
    assert not list(tmp_path.iterdir())


def test_wrong_bytes_are_no_figure(tmp_path: Path) -> None:
    def measured(job: Job, _place: Place) -> Figures:
        (Path(job.folder) / "o").write_bytes(b"\0" * MIB)
        return Figures(seconds=1)

    finding = Finding("pull", "one object")
    with BenchServer(Network("near"), ["o=1MiB"]) as server:
        contest(finding, "near", Place(tmp_path), [Entry(Client("fast", measured), server, "o")], RATE, 1)

    assert finding.rows == []
    assert "other bytes" in finding.wrong[0]


def test_the_command_writes_what_it_has_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    rows = [Row("pull", "near", "ours", 200.0, "MiB/s"), Row("pull", "near", "rclone", 100.0, "MiB/s")]

    def phase(_: Amounts) -> Finding:
        """A phase."""
        return Finding("pull", "one object", rows)

    monkeypatch.setattr(command, "PHASES", {"pull": phase, "other": lambda _: pytest.fail("not named")})
    monkeypatch.setattr(command, "described", lambda *_: {"kernel": "Linux"})
    out = tmp_path / "a.json"

    assert command.main(["pull", "--out", str(out), "--rounds", "7", "--quick"]) == 0

    assert rows_of(json.loads(out.read_text())) == rows
    assert "2.00" in out.with_suffix(".md").read_text()


@pytest.mark.long
def test_a_run_that_is_ended_leaves_nothing(tmp_path: Path) -> None:
    words = ["pull", "--quick", "--size", "1MiB", "--rounds", "1000", "--client", "threads", "--folder", str(tmp_path)]
    command_line = [sys.executable, "-m", "tests.benchmark", *words]
    run = subprocess.Popen(
        command_line, cwd=TOP, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert run.stdout is not None
    try:
        assert any(b"round 1 of" in line for line in run.stdout)
        run.send_signal(signal.SIGTERM)
        assert run.wait(20) != 0
    finally:
        run.kill()
        run.communicate()

    assert not list(tmp_path.iterdir())
    until(lambda: not running_in(tmp_path), "all processes have ended", 20)


def running_in(folder: Path) -> list[str]:
    """Command lines that name the folder, or whose temporary files are there."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.fsencode(folder) in (process / "cmdline").read_bytes() + (process / "environ").read_bytes():
                found.append(process.name)
    return found


def test_every_alternative_with_a_venv_of_its_own_is_pinned() -> None:
    assert sorted(pin.partition("==")[0] for pin in install.pins()) == sorted(OF_THEIR_VENV)
