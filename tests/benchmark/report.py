"""What was measured: as columns for a terminal, as JSON for later, and compared with what was measured before."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from tests.prove.report import columns, markdown_table

OURS = "ours"


@dataclass(frozen=True)
class Row:
    """One client in one case."""

    phase: str
    case: str
    client: str
    value: float
    """Median of the rounds."""
    unit: str
    is_more_better: bool = True
    low: float = 0.0
    high: float = 0.0


@dataclass
class Finding:
    """What a phase has found."""

    phase: str
    title: str
    rows: list[Row] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Clients that could not be measured, or got other bytes."""
    seconds: float = 0.0


def ratios(rows: Iterable[Row]) -> dict[tuple[str, str, str], float]:
    """(phase, case, other) → how many times as good ours is as the other: above 1, ours is better."""
    rows = list(rows)
    found = {}
    for ours in rows:
        if ours.client != OURS:
            continue
        for other in rows:
            if (other.phase, other.case) != (ours.phase, ours.case) or other.client == OURS:
                continue
            better, worse = (ours.value, other.value) if ours.is_more_better else (other.value, ours.value)
            if worse > 0:
                found[ours.phase, ours.case, other.client] = better / worse
    return found


def cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """One phase as texts, a line for each row."""
    against = ratios(rows)
    found = []
    for row in rows:
        ratio = against.get((row.phase, row.case, row.client))
        found.append(
            {
                "case": row.case,
                "client": row.client,
                "value": f"{number(row.value)} {row.unit}",
                "from … to": f"{number(row.low)} … {number(row.high)}" if row.high else "",
                "ours is × as good": "" if ratio is None else f"{ratio:.2f}",
            }
        )
    return [{name: line[name] for name in line if any(each[name] for each in found)} for line in found]


def told(finding: Finding) -> str:
    """One phase for a terminal."""
    parts = [f"== {finding.title} ({finding.seconds:.0f} s)"]
    parts += [columns(cells(finding.rows))] if finding.rows else []
    return "\n".join([*parts, *finding.notes, *(f"NOT MEASURED: {text}" for text in finding.wrong)])


def markdown(findings: Sequence[Finding], machine: Mapping[str, str], command: str) -> str:
    """All phases for a document."""
    parts = ["# Measured", f"`{command}`", markdown_table([{"machine": name, "": value} for name, value in machine.items()])]
    for finding in findings:
        parts += [f"## {finding.title}"]
        parts += [markdown_table(cells(finding.rows))] if finding.rows else []
        parts += ["\n".join(f"- {note}" for note in (*finding.notes, *finding.wrong))] if finding.notes or finding.wrong else []
    return "\n\n".join(parts) + "\n"


def to_json(findings: Sequence[Finding], machine: Mapping[str, str], command: str) -> dict[str, Any]:
    """Everything."""
    return {"command": command, "machine": dict(machine), "phases": [asdict(finding) for finding in findings]}


def rows_of(document: Mapping[str, Any]) -> list[Row]:
    """The rows of a file that `to_json` has made. Raises KeyError, TypeError: it is another one."""
    names = [each.name for each in fields(Row)]
    return [Row(**{name: row[name] for name in names}) for phase in document["phases"] for row in phase["rows"]]


def number(value: float) -> str:
    """Three digits or more, with thousands marked."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
