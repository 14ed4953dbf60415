"""The table of `deploy/docs/performance.md`, of the JSON beside it: `scripts/bench --out deploy/docs/performance.json` makes that."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmark.report import OURS, number
from tests.prove.report import markdown_table

MEASURED = Path(__file__).resolve().parents[2] / "deploy/docs/performance.json"
FAR = "10 ms, 50 MB/s a connection"


@dataclass(frozen=True)
class Figure:
    """One line of the table."""

    what: str
    phase: str
    case: str
    other: str
    """The client that ours is compared with. `best`: the best of those that do the same. `goal`: a number."""
    goal: float = 1.0
    """The least ratio, where more is better; else the largest one."""


FIGURES = (
    Figure("2 GiB, http, loopback", "pull", "loopback, http", "best", 0.95),
    Figure("2 GiB, https, loopback", "pull", "loopback, https", "best", 0.95),
    Figure("2 GiB, 10 ms away", "pull", FAR, "best", 0.97),
    Figure("2 GiB, 30 ms away", "pull", FAR.replace("10", "30"), "best", 0.97),
    Figure("1,000 files of 64 KiB, a load over the SPI", "whole", "1000 × 64 KiB, loopback, http", "go adapter", 2.0),
    Figure("the same, 10 ms away", "whole", f"1000 × 64 KiB, {FAR}", "go adapter", 2.0),
    Figure("10 MiB while 2 GiB are pulled, 10 ms away", "fair", f"10 MiB during 2GiB, {FAR}", "alone", 2.0),
    Figure("own time of a load, 10 models", "lifecycle", "own time of a load, 10 models known", "goal"),
    Figure("own time of a load, 5,000 models", "lifecycle", "own time of a load, 5000 models known", "goal"),
    Figure("start to the first answer", "start", "first answer, a key of S3", "1.5 × import grpc, botocore.session"),
    Figure("load and unload on Triton, one at a time", "triton", "load + unload, one at a time", "Triton alone", 1.6),
    Figure("the same, two at a time", "triton", "load + unload, two at a time", "Triton alone", 1.35),
    Figure(
        "inference beside 50 unloads, p99", "beside", "99th percentile, 500 models loaded, 50 unloads wait", "nothing else goes on", 1.2
    ),
    Figure("V2 JSON, 128 floats, p50", "fronts", "JSON, 128 floats, p50", "Triton's own", 1.3),
    Figure("V2 JSON, 3 MB, p50", "fronts", "JSON, 3 MB, p50", "Triton's own"),
)


def blocks() -> dict[str, Callable[[], str]]:
    """Name of a block of the page → what stands in it."""
    measured = json.loads(MEASURED.read_text())
    machine = [{"machine": name, "": value} for name, value in measured["machine"].items()]
    rows = [row for phase in measured["phases"] for row in phase["rows"]]
    return {
        "machine": lambda: markdown_table(machine) + "\n",
        "figures": lambda: markdown_table([_line(figure, rows) for figure in FIGURES]) + "\n",
    }


def _line(figure: Figure, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Raises KeyError: it was not measured."""
    found = {row["client"]: row for row in rows if (row["phase"], row["case"]) == (figure.phase, figure.case)}
    ours = found.pop(OURS)
    is_more_better = ours["is_more_better"]
    best = (max if is_more_better else min)(found.values(), key=lambda row: row["value"])
    other = best if figure.other == "best" else found[figure.other]
    ratio = ours["value"] / other["value"]
    is_held = ratio >= figure.goal if is_more_better else ratio <= figure.goal
    return {
        "what": figure.what,
        "ours": f"{number(ours['value'])} {ours['unit']}",
        "compared with": f"{number(other['value'])} {other['unit']}, {other['client']}",
        "ratio": f"{ratio:.2f}",
        "goal": f"{'≥' if is_more_better else '≤'} {figure.goal:g}",
        "held": "yes" if is_held else "**no**",
    }
