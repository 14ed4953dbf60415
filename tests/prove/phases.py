"""The phases of `scripts/prove`: each runs a program of the tests as a process, shows its output, and reads what it has found."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.prove.report import Proof, Row

TOP = Path(__file__).resolve().parents[2]
MOST_WRONG = 20


@dataclass(frozen=True)
class Amounts:
    """How much of each."""

    seeds: int
    first_seed: int
    kills: int
    traffic_kills: int
    fuzz: int
    soak: int
    soak_real: int
    seed: int
    jobs: int


def simulation(amounts: Amounts) -> Proof:
    """Histories in virtual time."""
    words = ["-m", "tests.simulation", "--seeds", amounts.seeds, "--from", amounts.first_seed, "--jobs", amounts.jobs]
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
    return _tabled("kills of Triton, in each phase", ["tests/fault/test_triton_comes_back.py"])


def adapter(amounts: Amounts) -> Proof:
    """The adapter killed at random points of a random mix of calls."""
    words = ["tests/fault/test_the_adapter_dies.py", "--kills", str(amounts.kills), "--kills-seed", str(amounts.seed)]
    return _tabled("kills of the adapter, at random points", words)


def traffic(amounts: Amounts) -> Proof:
    """Faults with the traffic of ModelMesh's simulator on."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        words = ["-m", "tests.prove.with_traffic", "--kills", amounts.traffic_kills, "--seed", amounts.seed, "--json", found]
        proof, code, _ = _ran("kills with the traffic of ModelMesh's simulator on", words)
        proof.command = proof.command.partition(" --json")[0]
        if found.is_file():
            said = json.loads(found.read_text())
            proof.rows += [Row(**row) for row in said["rows"]]
            proof.notes += said["notes"]
            proof.wrong += said["wrong"][:MOST_WRONG]
    if code and not proof.wrong:
        proof.wrong.append(f"it ended with code {code}")
    return proof


def fuzz(amounts: Amounts) -> Proof:
    """Hostile input of any kind."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.xml"
        options = ["--fuzz", amounts.fuzz, "--hypothesis-seed", amounts.seed]
        words = ["-m", "pytest", "-q", "tests/fuzz", *options, f"--junitxml={found}"]
        proof, code, _ = _ran("fuzz: hostile input", words)
        proof.command = f"scripts/test tests/fuzz {' '.join(map(str, options))}"
        cases = list(ElementTree.parse(found).iter("testcase")) if found.is_file() else []
    for case in cases:
        is_bad = case.find("failure") is not None or case.find("error") is not None
        if case.find("skipped") is not None or not (is_bad or "_any_" in case.get("name", "") or "digest" in case.get("name", "")):
            continue
        name = case.get("name", "").removeprefix("test_").replace("_", " ")
        proof.rows.append(Row(name, amounts.fuzz, 0 if is_bad else amounts.fuzz, int(is_bad)))
    if code and not proof.lost:
        proof.wrong.append(f"pytest ended with code {code}")
    return proof


def soak(amounts: Amounts) -> Proof:
    """Many cycles over the fake Triton."""
    return _soaked("fake", amounts.soak, amounts.seed)


def soak_real(amounts: Amounts) -> Proof:
    """Many cycles over the real Triton."""
    return _soaked("real", amounts.soak_real, amounts.seed)


PHASES: dict[str, Callable[[Amounts], Proof]] = {
    "triton": triton,
    "adapter": adapter,
    "traffic": traffic,
    "fuzz": fuzz,
    "simulation": simulation,
    "soak-real": soak_real,
    "soak": soak,
}
"""In this order: what finds something soonest comes first."""


def _soaked(bed: str, cycles: int, seed: int) -> Proof:
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        words = ["-m", "tests.soak", "--triton", bed, "--cycles", cycles, "--seed", seed, "--json", found]
        proof, code, _ = _ran(f"soak over the {bed} Triton", words)
        proof.command = proof.command.partition(" --json")[0]
        if found.is_file():
            said = json.loads(found.read_text())
            proof.figures += said["rows"]
            proof.notes.append(said["note"])
            proof.wrong += said["wrong"]
    if code and not proof.wrong:
        proof.wrong.append(f"it ended with code {code}")
    return proof


def _tabled(title: str, words: list[str]) -> Proof:
    """Tests that fill tables of faults."""
    with tempfile.TemporaryDirectory() as folder:
        found = Path(folder) / "found.json"
        proof, code, output = _ran(title, ["-m", "pytest", "-q", *words, "--tables", found])
        tables = json.loads(found.read_text()) if found.is_file() else {}
    proof.command = f"scripts/test {' '.join(words)}"
    for name, rows in tables.items():
        proof.notes += [name] if any("tried" in row for row in rows) else []
        bed = "".join(f", over {each}" for each in ("the fake Triton", "the real Triton") if each in name)
        proof.rows += [
            Row(f"{row['fault']}{bed}", row["tried"], row["survived"], row["lost"], row.get("note", "")) for row in rows if "tried" in row
        ]
    if code:
        proof.wrong.append(f"pytest ended with code {code}")
        proof.wrong += [line for line in output.splitlines() if line.startswith(("FAILED ", "ERROR "))][:MOST_WRONG]
    proof.wrong += [line for line in output.splitlines() if line.startswith("SKIPPED")]
    return proof


def _ran(title: str, words: list[object]) -> tuple[Proof, int, str]:
    """Run Python with these words at the top of the repository; its output is shown as it comes."""
    command = [sys.executable, *map(str, words)]
    print(f"\n==== {title}: python {shlex.join(command[1:])}", flush=True)
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
    return Proof(title, f"python {shlex.join(command[1:])}", seconds=seconds), ran.returncode, b"".join(parts).decode(errors="replace")
