"""What was measured: as columns for a terminal, as Markdown, as JSON for later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

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
    is_more_better: bool
    low: float
    high: float


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

    def add(
        self, case: str, client: str, value: float, unit: str, rounds: Sequence[float] = (0.0,), *, is_more_better: bool = False
    ) -> None:
        """A row."""
        self.rows.append(Row(self.phase, case, client, value, unit, is_more_better, min(rounds), max(rounds)))


def cells(rows: Sequence[Row]) -> list[dict[str, str]]:
    """One phase as texts, a line for each row; with how many times as good ours is as the other: above 1, ours is better."""
    ours = {row.case: row.value for row in rows if row.client == OURS}
    found = []
    for row in rows:
        mine = ours.get(row.case, 0.0) if row.client != OURS else 0.0
        ratio = mine / row.value if row.is_more_better and row.value else row.value / mine if mine else 0.0
        found.append({
            "case": row.case, "client": row.client, "value": f"{number(row.value)} {row.unit}",
            "from … to": f"{number(row.low)} … {number(row.high)}" if row.high else "",
            "ours is × as good": f"{ratio:.2f}" if ratio else "",
        })  # fmt: skip
    return found


def told(finding: Finding) -> str:
    """One phase for a terminal."""
    parts = [f"== {finding.title} ({finding.seconds:.0f} s)"]
    parts += [columns(cells(finding.rows))] if finding.rows else []
    return "\n".join([*parts, *finding.notes, *(f"NOT MEASURED: {text}" for text in finding.wrong)])


def markdown(findings: Sequence[Finding], machine: Mapping[str, str], command: str) -> str:
    """All phases for a document."""
    parts = ["# Measured", f"`{command}`", markdown_table([{"machine": name, "": value} for name, value in machine.items()])]
    for finding in findings:
        parts += [f"## {finding.title}", *([markdown_table(cells(finding.rows))] if finding.rows else [])]
        parts += ["\n".join(f"- {note}" for note in (*finding.notes, *finding.wrong))]
    return "\n\n".join(filter(None, parts)) + "\n"


def number(value: float) -> str:
    """Three digits or more, with thousands marked."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
