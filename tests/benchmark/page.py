"""The tables of `deploy/docs/performance.md`, of the JSON beside it: `scripts/bench --out deploy/docs/performance.json` makes that."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from tests.benchmark.report import OURS, Row, cells, ratios, rows_of
from tests.prove.report import markdown_table

MEASURED = Path(__file__).resolve().parents[2] / "deploy/docs/performance.json"
MATRICES = ("pull", "small", "whole")
"""Phases in which many clients do the same: a column for each."""
LISTS = ("stores", "fair", "checks", "lifecycle", "start", "triton", "beside", "fronts")
_COLUMNS = 116
_SHOWN = ("case", "client", "value", "CPU", "ours is × as good")


def blocks() -> dict[str, Callable[[], str]]:
    """Name of a block of the page → what stands in it."""
    measured = json.loads(MEASURED.read_text())
    rows = rows_of(measured)
    notes = {phase["phase"]: phase["notes"] for phase in measured["phases"]}
    return {
        "machine": partial(_machine, measured),
        **{phase: partial(_matrix, _of(rows, phase), notes[phase]) for phase in MATRICES},
        **{phase: partial(_list, _of(rows, phase), notes[phase]) for phase in LISTS},
        "profile": partial(_notes, notes["profile"]),
    }


def _of(rows: Sequence[Row], phase: str) -> list[Row]:
    return [row for row in rows if row.phase == phase]


def _machine(measured: Mapping[str, Any]) -> str:
    return markdown_table([{"machine": name, "": value} for name, value in measured["machine"].items()]) + "\n"


def _matrix(rows: Sequence[Row], notes: Sequence[str]) -> str:
    """Cases down, clients across: the value, its CPU, and in ours how good it is beside the best of the others."""
    clients = list(dict.fromkeys(row.client for row in rows if row.client not in (OURS, "goal")))
    lines = []
    for case in dict.fromkeys(row.case for row in rows):
        found = {row.client: row for row in rows if row.case == case}
        if "goal" in found:
            lines.append({"case": case, OURS: _short(found[OURS])} | dict.fromkeys(clients, ""))
            continue
        best = min(ratios(list(found.values())).values(), default=0.0)
        lines.append(
            {"case": f"{case}; {found[OURS].unit}", OURS: f"**{_short(found[OURS])}**, {best:.2f} × the best other"}
            | {client: _short(found[client]) if client in found else "–" for client in clients}
        )
    return _told(lines, notes)


def _list(rows: Sequence[Row], notes: Sequence[str]) -> str:
    return _told([{name: line[name] for name in _SHOWN if name in line} for line in cells(rows)], notes)


def _told(lines: list[dict[str, str]], notes: Sequence[str]) -> str:
    return "\n".join([markdown_table(lines), "", _notes(notes)])


def _notes(notes: Sequence[str]) -> str:
    items = [textwrap.fill(note, _COLUMNS, initial_indent="- ", subsequent_indent="  ", break_on_hyphens=False) for note in notes]
    return "\n".join([*items, ""]).replace("<", "&lt;")


def _short(row: Row) -> str:
    value = f"{row.value:,.0f}" if abs(row.value) >= 100 else f"{row.value:.1f}"
    return value if row.cpu is None else f"{value} ({row.cpu:.1f})"
