"""Ratios, regressions, tables and pictures of the benchmark, without measuring anything."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from itertools import pairwise
from pathlib import Path

import grpc
import pytest

from tests.benchmark import __main__ as command
from tests.benchmark import install, svg
from tests.benchmark.amounts import Amounts
from tests.benchmark.bed import OF_THEIR_VENV, BenchServer, Client, Network, Place
from tests.benchmark.contest import Entry, contest, rate
from tests.benchmark.gauge import MIB, Figures, Job
from tests.benchmark.report import Curve, Finding, Row, cells, markdown, ratios, regressions, rows_of, to_json, told
from tests.real.children import TOP, PartError
from tests.real.polls import until


def rows(ours: float, theirs: float, *, is_more_better: bool = True) -> list[Row]:
    return [Row("pull", "near", name, value, "MiB/s", is_more_better) for name, value in (("ours", ours), ("rclone", theirs))]


def test_a_ratio_above_one_is_good_for_us() -> None:
    assert ratios(rows(300, 200))["pull", "near", "rclone"] == 1.5
    assert ratios(rows(100, 200, is_more_better=False))["pull", "near", "rclone"] == 2.0


def test_cases_and_phases_do_not_mix() -> None:
    others = [Row("pull", "far", "rclone", 1, "MiB/s"), Row("small", "near", "rclone", 1, "files/s")]

    assert list(ratios([*rows(1, 1), *others])) == [("pull", "near", "rclone")]


def test_nothing_is_divided_by_zero() -> None:
    assert ratios(rows(1, 0)) == {}


@pytest.mark.parametrize(("now", "is_said"), [(200, False), (181, False), (179, True), (20, True)])
def test_a_ratio_that_has_fallen_is_said(now: float, is_said: bool) -> None:
    """The machine may be slower: what the other does in the same run is what counts."""
    found = regressions(rows(200, 100), rows(now / 4, 25))

    assert bool(found) == is_said
    assert all("pull: near" in line and "rclone" in line for line in found)


def test_a_case_that_only_one_of_them_has_is_no_regression() -> None:
    assert regressions(rows(2, 1), [Row("pull", "elsewhere", "ours", 1, "MiB/s")]) == []
    assert regressions([], rows(1, 2)) == []


def test_json_gives_the_rows_back() -> None:
    finding = Finding("pull", "one object", rows(3, 2), notes=["a note"])

    document = json.loads(json.dumps(to_json([finding], {"kernel": "Linux"}, "scripts/bench")))

    assert rows_of(document) == finding.rows
    assert document["machine"] == {"kernel": "Linux"}


def test_a_table_shows_what_there_is() -> None:
    finding = Finding("pull", "one object", rows(3000, 2), wrong=["boto3: broke"])

    assert cells(finding.rows)[1]["ours is × as good"] == "1500.00"
    assert "CPU" not in cells(finding.rows)[0]
    assert "3,000 MiB/s" in told(finding)
    assert "NOT MEASURED: boto3: broke" in told(finding)
    assert "| near | rclone |" in markdown([finding], {"kernel": "Linux"}, "scripts/bench")


def test_a_contest_takes_medians_and_leaves_out_whoever_fails(tmp_path: Path) -> None:
    seconds = iter([4.0, 1.0, 2.0])

    def measured(job: Job, _place: Place) -> Figures:
        item = next(iter(job.keys))
        (Path(job.folder) / item[0]).write_bytes(server.items[item[0]].content())
        return Figures(seconds=next(seconds), cpu_seconds=1, idle_mib=10, peak_mib=12)

    def breaks(_job: Job, _place: Place) -> Figures:
        raise RuntimeError("it\nbroke")

    finding = Finding("pull", "one object")
    with BenchServer(Network("near"), ["o=1MiB"]) as server:
        entries = [Entry(Client("ours", measured), server, "o"), Entry(Client("bad", breaks), server, "o")]
        entries.append(Entry(Client("absent", breaks, lambda _: False), server, "o"))
        found = contest(finding, "near", Place(tmp_path), entries, rate(8 * MIB), 3)

    assert list(found) == ["ours"]
    assert [(row.client, row.value, row.low, row.high, row.above_idle_mib) for row in finding.rows] == [("ours", 4, 2, 8, 2)]
    assert finding.wrong == ["near: bad: it / broke"]
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", [subprocess.TimeoutExpired("peer", 300), PartError("go-adapter: not listening"), grpc.RpcError("INTERNAL")]
)
def test_however_a_client_fails_the_others_are_measured(tmp_path: Path, error: Exception) -> None:
    def fails(_job: Job, _place: Place) -> Figures:
        raise error

    def measured(job: Job, _place: Place) -> Figures:
        (Path(job.folder) / "o").write_bytes(server.items["o"].content())
        return Figures(seconds=1)

    finding = Finding("pull", "one object")
    with BenchServer(Network("near"), ["o=1MiB"]) as server:
        entries = [Entry(Client("bad", fails), server, "o"), Entry(Client("good", measured), server, "o")]
        contest(finding, "near", Place(tmp_path), entries, rate(MIB), 1)

    assert [row.client for row in finding.rows] == ["good"]
    assert len(finding.wrong) == 1
    assert finding.wrong[0].startswith("near: bad: ")
    assert not list(tmp_path.iterdir())


def test_a_server_that_does_not_start_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    with pytest.raises(PartError), BenchServer(Network("near", checksums="none of them"), ["o=1MiB"]):
        pass

    assert not list(tmp_path.iterdir())


def test_wrong_bytes_are_no_figure(tmp_path: Path) -> None:
    def measured(job: Job, _place: Place) -> Figures:
        (Path(job.folder) / "o").write_bytes(b"\0" * MIB)
        return Figures(seconds=1)

    finding = Finding("pull", "one object")
    with BenchServer(Network("near"), ["o=1MiB"]) as server:
        contest(finding, "near", Place(tmp_path), [Entry(Client("fast", measured), server, "o")], rate(MIB), 1)

    assert finding.rows == []
    assert "other bytes" in finding.wrong[0]


SERIES = {"rclone": [(1, 5.0), (2, 500.0)], "ours": [(1, 10.0), (2, 505.0)], "none": []}


@pytest.mark.parametrize("is_log", [False, True])
def test_a_picture_is_xml_with_a_line_for_each(is_log: bool) -> None:
    picture = svg.drawn(Curve("c", "A <title> & more", "MiB", "MiB/s", SERIES, is_log))

    tree = ElementTree.fromstring(picture)
    lines = [each for each in tree.iter() if each.tag.endswith("polyline")]
    texts = [each.text or "" for each in tree.iter() if each.tag.endswith("text")]
    assert len(lines) == 2
    assert {"ours", "rclone", "A <title> & more"} <= set(texts)
    assert "none" not in texts
    assert "prefers-color-scheme:dark" in picture
    numbers = [float(n) for line in lines for pair in line.attrib["points"].split() for n in pair.split(",")]
    assert all(0 <= number <= svg.WIDTH for number in numbers)


def test_names_of_lines_do_not_cover_each_other() -> None:
    many = {f"n{number}": [(1, 100.0), (2, 100.0 + number / 10)] for number in range(8)}

    picture = svg.drawn(Curve("c", "t", "x", "y", many))

    heights = sorted(float(y) for y in re.findall(rf'<text class="d\d" x="{svg.WIDTH - svg.RIGHT + 12}" y="([\d.]+)"', picture))
    assert len(heights) == 8
    assert all(below - above >= 12 for above, below in pairwise(heights))
    assert heights[-1] < svg.HEIGHT


def test_one_point_alone_is_drawn() -> None:
    assert "<circle" in svg.drawn(Curve("c", "t", "x", "y", {"ours": [(1, 0.0)]}, is_x_log=True))


@pytest.fixture
def one_phase(monkeypatch: pytest.MonkeyPatch) -> list[Amounts]:
    given: list[Amounts] = []

    def phase(amounts: Amounts) -> Finding:
        """A phase."""
        given.append(amounts)
        curve = Curve("drawn", "t", "x", "y", {"ours": [(1, 2.0)]})
        return Finding("pull", "one object", rows(100.0 * len(given), 100), [curve])

    monkeypatch.setattr(command, "PHASES", {"pull": phase, "other": phase})
    monkeypatch.setattr(command, "described", lambda *_: {"kernel": "Linux"})
    return given


def test_the_command_writes_and_compares(one_phase: list[Amounts], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = tmp_path / "a.json", tmp_path / "b.json"

    assert command.main(["pull", "--out", str(first), "--pictures", str(tmp_path / "p")]) == 0
    assert command.main(["pull", "--out", str(second), "--compare", str(first), "--rounds", "7", "--quick"]) == 0
    assert "no ratio has fallen" in capsys.readouterr().out
    assert command.main(["other", "--compare", str(second)]) == 0
    one_phase.clear()
    assert command.main(["pull", "--compare", str(second)]) == 1
    assert "FALLEN: pull: near" in capsys.readouterr().out
    assert (tmp_path / "p/drawn.svg").read_text().startswith("<svg")
    assert first.with_suffix(".md").read_text().startswith("# Measured")


def test_amounts_of_a_quick_run_can_be_chosen(one_phase: list[Amounts]) -> None:
    command.main(["pull", "--quick", "--rounds", "2", "--known", "5", "6", "--client", "rclone"])

    (amounts,) = one_phase
    assert (amounts.rounds, amounts.size, amounts.known) == (2, "256MiB", (5, 6))
    assert [peer.name for peer in amounts.peers] == ["rclone"]


def test_folders_that_are_named_are_below_the_one_the_command_was_given_in(
    one_phase: list[Amounts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Clients run in the repository. A link to Python stays one: what it leads to has another venv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "python").symlink_to(sys.executable)
    command.main(["pull", "--folder", "disk", "--peers", "python"])

    place = one_phase[0].place
    assert (place.folder, place.peers_python) == (tmp_path / "disk", tmp_path / "python")


def test_what_is_not_compared_is_said_to_be_so(one_phase: list[Amounts], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Ratios of other amounts are other ratios."""
    first = tmp_path / "a.json"
    command.main(["pull", "--out", str(first)])
    first.write_text(first.read_text().replace("one object", "one object of another size"))
    one_phase.clear()

    assert command.main(["pull", "--compare", str(first)]) == 0
    said = capsys.readouterr().out
    assert "no ratio" not in said
    assert "nothing to compare: no phase has measured the same there" in said


def test_a_phase_that_is_not_there(one_phase: list[Amounts]) -> None:
    with pytest.raises(SystemExit):
        command.main(["pulll"])
    assert one_phase == []


def test_an_alternative_that_is_not_there(one_phase: list[Amounts]) -> None:
    """Else ours would be measured beside nobody."""
    with pytest.raises(SystemExit):
        command.main(["pull", "--client", "rclon"])
    assert one_phase == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_whatever_ends_a_run_it_leaves_nothing(tmp_path: Path, number: signal.Signals) -> None:
    words = ["pull", "--quick", "--size", "1MiB", "--rounds", "1000", "--client", "plain", "--folder", str(tmp_path)]
    command_line = [sys.executable, "-m", "tests.benchmark", *words]
    run = subprocess.Popen(
        command_line, cwd=TOP, env={**os.environ, "TMPDIR": str(tmp_path)}, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert run.stdout is not None
    try:
        assert any(b"round 1 of" in line for line in run.stdout)
        run.send_signal(number)
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
