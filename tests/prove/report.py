"""What was tried and what was lost: as Markdown for a file, and as columns for a terminal."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

DESIGNED = "as designed"
"""A note that begins so tells of models that are given up on purpose, and said to be."""


@dataclass(frozen=True)
class Row:
    """One fault."""

    fault: str
    tried: int
    survived: int
    lost: int
    note: str = ""


@dataclass
class Proof:
    """What one phase has shown."""

    title: str
    command: str
    """Shows it again."""
    rows: list[Row] = field(default_factory=list)
    figures: list[dict[str, str]] = field(default_factory=list)
    """Rows of another kind: curves."""
    notes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """What no row tells: a program that failed, a curve that grows."""
    seconds: float = 0.0
    commit: str = ""
    """What was tried: the short name of the commit, with a plus sign where the tree had changes."""
    date: str = ""
    amounts: str = ""
    """The options that decide how much was tried."""

    @property
    def lost(self) -> int:
        """Over all rows, without what is given up by design."""
        return sum(row.lost for row in self.rows if not row.note.startswith(DESIGNED))

    @property
    def holds(self) -> bool:
        """Whether something was tried, nothing was lost, and nothing went wrong."""
        return bool(self.rows or self.figures) and not self.lost and not self.wrong


def rows_of(proof: Proof) -> list[dict[str, str]]:
    """Its rows as texts."""
    has_notes = any(row.note for row in proof.rows)
    found = []
    for row in proof.rows:
        lost = f"0 ({row.lost} given up)" if row.note.startswith(DESIGNED) else str(row.lost)
        cells = {"fault": row.fault, "tried": str(row.tried), "survived": str(row.survived), "lost": lost}
        found.append(cells | ({"note": row.note} if has_notes else {}))
    return found


def columns(rows: Sequence[dict[str, str]]) -> str:
    """For a terminal."""
    lines = [list(rows[0]), *([row.get(name, "") for name in rows[0]] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def markdown_table(rows: Sequence[dict[str, str]]) -> str:
    """For a file."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([row.get(name, "").replace("|", "\\|") for name in rows[0]] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def told(proof: Proof) -> str:
    """One phase for a terminal."""
    parts = [f"== {proof.title} ({proof.seconds:.0f} s): {'holds' if proof.holds else 'DOES NOT HOLD'}"]
    parts += [columns(rows) for rows in (rows_of(proof), proof.figures) if rows]
    return "\n".join([*parts, *proof.notes, *(f"WRONG: {text}" for text in proof.wrong)])


def read(path: Path) -> dict[str, Proof]:
    """What an earlier run has written, by phase; nothing where there is no file."""
    found = json.loads(path.read_text()) if path.is_file() else {}
    return {name: Proof(**{**each, "rows": [Row(**row) for row in each["rows"]]}) for name, each in found.items()}


def write(proofs: Mapping[str, Proof], path: Path) -> None:
    """For the next run."""
    path.write_text(json.dumps({name: asdict(proof) for name, proof in proofs.items()}, indent=1) + "\n")


def markdown(proofs: Mapping[str, Proof]) -> str:
    """All phases as a table, then those that do not hold with their rows; the rows of the others are in the JSON."""
    summary = [
        {
            "phase": f"`{name}`",
            "tried": str(sum(row.tried for row in proof.rows)) if proof.rows else "",
            "survived": str(sum(row.survived for row in proof.rows)) if proof.rows else "",
            "lost": str(proof.lost) if proof.rows else "",
            "holds": "yes" if proof.holds else "**no**",
            "minutes": f"{proof.seconds / 60:.1f}",
            "commit": f"`{proof.commit}`",
            "date": proof.date,
        }
        for name, proof in proofs.items()
    ]
    head = f"`scripts/prove` on {platform.machine()}, Python {platform.python_version()}. The JSON beside this page has all rows."
    parts = ["# What was tried, and what was lost", head, markdown_table(summary)]
    for name, proof in ((name, proof) for name, proof in proofs.items() if not proof.holds):
        parts += [f"## {name}: {proof.title}", f"`{proof.command}`"]
        parts += [markdown_table(rows) for rows in (rows_of(proof), proof.figures) if rows]
        if proof.notes:
            parts.append("\n".join(f"- {note}" for note in proof.notes))
        if proof.wrong:
            parts.append("\n".join(["Wrong:", "", *(f"- {text}" for text in proof.wrong)]))
    return "\n\n".join(parts) + "\n"
