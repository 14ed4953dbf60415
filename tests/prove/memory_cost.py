"""
What measuring costs on the real Triton: the reporter's share of a core, and the time of a ModelInfer with it and without it.

In turns, back and forth: reporter and adapter are stopped; the reporter is idle, since it is not asked; both work as in the five minutes
after a load, in which the adapter asks every two seconds; the reporter is asked all the time, as during a load, and tells twice a second.
"""

from __future__ import annotations

import os
import signal
import statistics
import time
from pathlib import Path

import numpy as np

from tests.prove.pods import CLAIM, Kind, holder, pod, weights
from tests.real.memory_group import MemoryGroup
from tests.real.mesh import LONG_ENOUGH_SECONDS, Mesh

MODELS = (Kind("asked", "python", holder("load", 1)), *(Kind(f"other-{n}", "onnx", weights(1, 4)) for n in range(4)))
"""Seventeen processes."""
TURNS = ("off", "idle", "after a load", "during loads")
ROUNDS, TURN_SECONDS = 10, 2.5
"""Of a round each turn comes twice, the second time in the other order."""
QUIET_SECONDS, IDLE_SECONDS = 8.0, 90.0
"""Until the reporter has seen that it is not asked, and then."""
MOST_IDLE_PERCENT = 0.2
"""Of a core."""
MOST_SLOWER_PERCENT = 5.0
"""What the median of a ModelInfer may differ: the turns of one kind differ by more on a machine with others."""


def cost(folder: Path) -> dict[str, float]:
    """Blocks for some minutes."""
    times: dict[str, list[list[float]]] = {turn: [] for turn in TURNS}
    shares: dict[str, list[float]] = {turn: [] for turn in TURNS}
    with pod(folder, MODELS) as (running, group):
        for kind in MODELS:
            running.mesh.load(kind.name, kind.model_type, kind.name, **CLAIM)
        reporter, file = _reporter(group), group.file
        for turn in [*TURNS, *reversed(TURNS)] * ROUNDS:
            os.kill(reporter, signal.SIGSTOP if turn == "off" else signal.SIGCONT)
            os.kill(running.adapter.pid, signal.SIGSTOP if turn in ("off", "idle") else signal.SIGCONT)
            before = _cpu_seconds(reporter)
            times[turn].append(_turn(running.mesh, file.with_name(f"{file.name}.asked" if turn == "during loads" else "other")))
            shares[turn].append((_cpu_seconds(reporter) - before) / TURN_SECONDS)
        os.kill(reporter, signal.SIGCONT)
        os.kill(running.adapter.pid, signal.SIGSTOP)
        time.sleep(QUIET_SECONDS)
        before = _cpu_seconds(reporter)
        time.sleep(IDLE_SECONDS)
        found = {"reporter, not asked, % of a core": 100 * (_cpu_seconds(reporter) - before) / IDLE_SECONDS}
        os.kill(running.adapter.pid, signal.SIGCONT)
    for turn in TURNS:
        every = sorted(time for each in times[turn] for time in each)
        ratios = [statistics.median(one) / statistics.median(off) for one, off in zip(times[turn], times["off"], strict=True)]
        found |= {
            f"reporter, {turn}, % of a core": 100 * statistics.mean(shares[turn]),
            f"median, {turn}, ms": statistics.median(every),
            f"p99, {turn}, ms": every[len(every) * 99 // 100],
            f"slower, {turn}, %": 100 * (statistics.median(ratios) - 1),
        }
    return {name: round(value, 3) for name, value in found.items()}


def problems(found: dict[str, float]) -> list[str]:
    """What does not hold."""
    most = {"reporter, not asked, % of a core": MOST_IDLE_PERCENT} | {f"slower, {turn}, %": MOST_SLOWER_PERCENT for turn in TURNS[1:3]}
    return [f"{name}: {found[name]:.2f}, more than {bound:g}" for name, bound in most.items() if found[name] > bound]


def sentence(found: dict[str, float]) -> str:
    """For a page."""
    times = ", ".join(f"{found[f'median, {turn}, ms']:.3f} ms {'without it' if turn == 'off' else turn}" for turn in TURNS)
    idle, busy = found["reporter, not asked, % of a core"], found["reporter, during loads, % of a core"]
    return f"The reporter takes {idle:.2f} % of a core while idle, {busy:.1f} % during loads. The median of a ModelInfer: {times}"


def _turn(mesh: Mesh, file: Path) -> list[float]:
    """Milliseconds of requests, one after the other; the file is touched before each."""
    request = mesh.infer_request("asked", {"X": np.zeros(4, np.float32)})
    times, end = [], time.monotonic() + TURN_SECONDS
    while time.monotonic() < end:
        file.touch()
        began = time.perf_counter()
        mesh.triton.ModelInfer(request, timeout=LONG_ENOUGH_SECONDS)
        times.append(1000 * (time.perf_counter() - began))
    return times


def _reporter(group: MemoryGroup) -> int:
    """Its process."""
    pids = (group.folder / "cgroup.procs").read_text().split()
    return next(int(pid) for pid in pids if b"triton-memory" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[3:4])


def _cpu_seconds(pid: int) -> float:
    """Of the process, and of those that it has started and that have ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
