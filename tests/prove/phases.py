"""The phases of `scripts/prove`: each runs a program of the tests as a process, shows its output, and reads what it has found."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.prove.net.mistakes import MISTAKES
from tests.prove.net.page import RECORD
from tests.prove.report import Proof, Row

TOP = Path(__file__).resolve().parents[2]
PICTURE = "deploy/docs/pictures/sizes.svg"
MOST_WRONG = 20
ALL = ("-m", "not benchmark")
LONG = ("-m", "long")
SUITES: dict[str, tuple[str, tuple[str, ...]]] = {
    "writes": ("every writing call fails once", ("tests/fault/test_every_write_may_fail.py", "--every-write", *ALL)),
    "faults": ("neighbours that fail or hang", ("tests/fault", "tests/integration", "tests/contract", "tests/mesh", "tests/unit", *LONG)),
    "hostile": ("hostile servers, archives and files", ("tests/security", *LONG)),
    "fronts": ("HTTP fronts: many models, generated requests", ("tests/fronts", *LONG)),
    "chart": ("odd values of the chart, and an API server", ("tests/chart", *LONG)),
    "image": ("the image's steps", ("tests/image", *LONG)),
    "observability": ("alerts and dashboard on a real run", ("tests/observability", *LONG)),
    "peers": ("the adapter and other clients pull from the server of scripts/bench", ("tests/benchmark", *LONG)),
    "plants": ("mistakes planted under the simulation", ("tests/simulation", *LONG)),
}
"""Phases that run tests marked `long`: name → title, and words for pytest."""


@dataclass(frozen=True)
class Amounts:
    """
    How much of each: histories of the simulation, seconds of traffic, minutes with more models than fit, examples of each fuzz test,
    cycles of load and unload.
    """

    seeds: int
    traffic_seconds: int
    eviction_minutes: int
    fuzz: int
    soak: int
    soak_real: int


FULL = Amounts(20_000, 1_500, 20, 20_000, 50_000, 5_000)
QUICK = Amounts(200, 60, 3, 200, 150, 50)
SEED = 1
"""Of everything that is random, beside the simulation."""
JOBS = os.cpu_count() or 1


def simulation(amounts: Amounts) -> Proof:
    """Histories in virtual time."""
    words = ["-m", "tests.simulation", "--seeds", amounts.seeds, "--jobs", JOBS]
    proof, code, output = _ran("simulation: histories in virtual time", words)
    found = re.search(r"^(\d+) seeds in .*?: (\d+) failed", output, re.M)
    if found is None:
        proof.wrong.append(f"tests.simulation ended with code {code} and no count of seeds")
        return proof
    seeds, failed = int(found[1]), int(found[2])
    proof.rows.append(Row("seeds", seeds, seeds - failed, failed))
    proof.notes += [found.string[found.start() :].splitlines()[0]]
    proof.notes += [" ".join(line.split()) for line in output.splitlines() if re.match(r" +\d+  \S", line)]
    proof.wrong += [line for line in output.splitlines() if line.startswith("FAILED")][:MOST_WRONG]
    return proof


def triton(amounts: Amounts) -> Proof:
    """Triton killed, stopped, hung and replaced, in each phase of its work."""
    return _tabled("kills of Triton, in each phase", ["tests/fault/test_triton_comes_back.py", *ALL])


def traffic(amounts: Amounts) -> Proof:
    """Faults with the traffic of ModelMesh's simulator on, on the real parts."""
    options = ["--models", 50, "--rate", 30, "--fault-pause", 3, "--seconds", amounts.traffic_seconds, "--seed", SEED]
    words = ["-m", "tests.mesh", "--faults", "--keep-going", *options]
    proof, said = _said("faults with the traffic of ModelMesh's simulator on", words)
    for row in said.get("faults", ()):
        note = f"{row['times']} times; all answer {row['slowest']:.1f} s after the fault at most"
        proof.rows.append(Row(row["kind"], row["tried"], row["survived"], row["tried"] - row["survived"], note))
    proof.notes += [said["calls"]] if said else []
    proof.wrong += said.get("broken", [])[:MOST_WRONG]
    return proof


def evictions(amounts: Amounts) -> Proof:
    """More models than fit, with measured sizes and with an oracle."""
    words = ["-m", "tests.prove.evictions", "--minutes", amounts.eviction_minutes, "--seed", SEED]
    proof, said = _said("evictions: measured sizes, an oracle, and files × 1.25", words)
    if said:
        proof.figures += [{name: str(value) for name, value in run.items() if name != "broken"} for run in said["runs"]]
        proof.notes.append(f"the group's limit: {said['limit_mib']} MiB; the run over files has none, and goes on")
        proof.wrong += said["wrong"]
    return proof


def memory(_: Amounts) -> Proof:
    """Sizes of models beside what the kernel says of them, one by one and four at once; what measuring costs."""
    proof, said = _said("memory: sizes of models, measured and true", ["-m", "tests.prove.memory", "--plot", PICTURE])
    if said:
        for name, what in (("rows", "one by one"), ("at_once", "never seen before, four at once")):
            lost = len(said["wrong"][name])
            proof.rows.append(
                Row(f"sizes of models, {what}", len(said[name]), len(said[name]) - lost, lost, "; ".join(said["wrong"][name]))
            )
        proof.figures, proof.notes = said["rows"], said["notes"]
        proof.wrong += said["wrong"]["cost"]
    return proof


def fuzz(amounts: Amounts) -> Proof:
    """Hostile input of any kind."""
    options = ["--fuzz", amounts.fuzz, "--hypothesis-seed", SEED, *ALL]
    proof, code, _, cases = _tested("fuzz: hostile input", ["tests/fuzz", *options])
    for case in cases:
        is_bad = _is_bad(case)
        if case.find("skipped") is not None or not (is_bad or "_any_" in case.get("name", "") or "digest" in case.get("name", "")):
            continue
        name = case.get("name", "").removeprefix("test_").replace("_", " ")
        proof.rows.append(Row(name, amounts.fuzz, 0 if is_bad else amounts.fuzz, int(is_bad)))
    if code and not proof.lost:
        proof.wrong.append(f"pytest ended with code {code}")
    return proof


def soak(amounts: Amounts) -> Proof:
    """Many cycles over the fake Triton."""
    return _soaked("fake", amounts.soak)


def soak_real(amounts: Amounts) -> Proof:
    """Many cycles over the real Triton."""
    return _soaked("real", amounts.soak_real)


def net(_: Amounts) -> Proof:
    """Mistakes planted in the product: a row for each package, which survives where the tests find the mistake."""
    words = ["-m", "tests.prove.net", "--whole", "--jobs", JOBS, "--json"]
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / RECORD.name
        proof, code, _ = _ran("net: mistakes planted in the product", [*words, found])
        proof.command = proof.command.replace(str(found), str(RECORD.relative_to(TOP)))
        outcomes = {each["name"]: each["found_by"] for each in json.loads(found.read_text())} if found.is_file() else {}
        if not code:
            shutil.copy(found, RECORD)
    for package in dict.fromkeys(mistake.package for mistake in MISTAKES):
        names = [mistake.name for mistake in MISTAKES if mistake.package == package and mistake.name in outcomes]
        missed = [name for name in names if not outcomes[name]]
        if names:
            note = f"as designed: at most one in twenty; not found: {', '.join(missed)}" if missed else ""
            proof.rows.append(Row(f"mistakes in {package}", len(names), len(names) - len(missed), len(missed), note))
    if code:
        proof.wrong.append(f"it ended with code {code}: too many mistakes are not found, or a test fails without one")
    return proof


def coverage(_: Amounts) -> Proof:
    """Which lines of the adapter the tests run."""
    proof, code, output = _ran("coverage: lines that the tests run", ["scripts/coverage"], program="bash")
    found = re.search(r"^TOTAL +(\d+) +(\d+) +(\d+)%", output, re.M)
    if found:
        proof.figures.append({"lines": found[1], "not run": found[2], "percent": found[3]})
    if code or not found:
        proof.wrong.append(f"scripts/coverage ended with code {code}")
    return proof


def _suite(name: str) -> Callable[[Amounts], Proof]:
    """A phase of `SUITES`: a row for each file of tests."""

    def phase(_: Amounts) -> Proof:
        title, words = SUITES[name]
        proof, code, output, cases = _tested(title, words)
        for file in dict.fromkeys(case.get("classname", "") for case in cases):
            bad = [_is_bad(case) for case in cases if case.get("classname") == file and case.find("skipped") is None]
            if bad:
                proof.rows.append(Row(file.removeprefix("tests."), len(bad), bad.count(False), bad.count(True)))
        if code and not proof.lost:
            proof.wrong.append(f"pytest ended with code {code}")
        proof.wrong += [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR ", "SKIPPED "))][:MOST_WRONG]
        return proof

    return phase


PHASES: dict[str, Callable[[Amounts], Proof]] = {
    "triton": triton,
    "traffic": traffic,
    "memory": memory,
    "evictions": evictions,
    "fuzz": fuzz,
    "simulation": simulation,
    **{name: _suite(name) for name in SUITES},
    "net": net,
    "soak-real": soak_real,
    "soak": soak,
    "coverage": coverage,
}
"""In this order: what finds something soonest comes first."""


def _tested(title: str, words: Sequence[object]) -> tuple[Proof, int, str, list[ElementTree.Element]]:
    """A run of pytest, and its test cases."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.xml"
        proof, code, output = _ran(title, ["-m", "pytest", "-q", *words, f"--junitxml={found}"])
        cases = list(ElementTree.parse(found).iter("testcase")) if found.is_file() else []
    proof.command = f"scripts/test {shlex.join(map(str, words))}"
    return proof, code, output, cases


def _is_bad(case: ElementTree.Element) -> bool:
    return case.find("failure") is not None or case.find("error") is not None


def _soaked(triton: str, cycles: int) -> Proof:
    words = ["-m", "tests.soak", "--triton", triton, "--cycles", cycles, "--seed", SEED]
    proof, said = _said(f"soak over the {triton} Triton", words)
    proof.figures += said.get("rows", [])
    proof.notes += [said["note"]] if said else []
    proof.wrong += said.get("wrong", [])
    return proof


def _said(title: str, words: Sequence[object]) -> tuple[Proof, dict[str, Any]]:
    """A program that writes its outcome with `--json`; empty where it has not."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        proof, code, _ = _ran(title, [*words, "--json", found])
        said: dict[str, Any] = json.loads(found.read_text()) if found.is_file() else {}
    proof.command = proof.command.partition(" --json")[0]
    proof.wrong += [f"it ended with code {code}"] if code else []
    return proof, said


def _tabled(title: str, words: list[str]) -> Proof:
    """Tests that fill tables of faults."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        proof, code, output = _ran(title, ["-m", "pytest", "-q", *words, "--tables", found])
        tables = json.loads(found.read_text()) if found.is_file() else {}
    proof.command = f"scripts/test {shlex.join(words)}"
    for name, rows in tables.items():
        proof.notes += [name] if any("tried" in row for row in rows) else []
        place = "".join(f", over {each}" for each in ("the fake Triton", "the real Triton") if each in name)
        proof.rows += [
            Row(f"{row['fault']}{place}", row["tried"], row["survived"], row["lost"], row.get("note", "")) for row in rows if "tried" in row
        ]
    if code:
        proof.wrong.append(f"pytest ended with code {code}")
        proof.wrong += [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))][:MOST_WRONG]
    proof.wrong += [line for line in output.splitlines() if line.startswith("SKIPPED")]
    return proof


def _ran(title: str, words: Sequence[object], program: str = "python") -> tuple[Proof, int, str]:
    """Run Python, or another program, with these words at the top of the repository; its output is shown as it comes."""
    command = [sys.executable if program == "python" else program, *map(str, words)]
    shown = shlex.join([program, *command[1:]])
    print(f"\n==== {title}: {shown}", flush=True)
    began = time.monotonic()
    parts = []
    with subprocess.Popen(
        command, cwd=TOP, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as ran:
        assert ran.stdout is not None
        while part := os.read(ran.stdout.fileno(), 65536):
            parts.append(part)
            sys.stdout.buffer.write(part)
            sys.stdout.flush()
    seconds = time.monotonic() - began
    return Proof(title, shown, seconds=seconds), ran.returncode, b"".join(parts).decode(errors="replace")
