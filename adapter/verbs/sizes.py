"""
How much memory each model has, and how that is known: of the journal, beside what a reporter tells of Triton's memory.

Part of the view of all models (`models`); `text` is its table.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from adapter.memory.report import OLD_SECONDS, Report, read
from adapter.records import Record, Sized
from adapter.verbs.cells import age, short, table
from adapter.volume.boot import boot_seconds

COLUMNS = (("SIZE", ">6"), ("SOURCE", "<9"), ("PREDICTED", ">9"), ("MEASURED", ">8"), ("SINCE", ">6"), ("STATE", "<9"))
BAR_WIDTH = 20


def of(record: Record, remembered: Mapping[str, Sized]) -> dict[str, Any] | None:
    """Where the size of a model comes from; None: not known any more."""
    known = remembered.get(record.content.spec) if record.content else None
    if known is None or known.content != record.content:
        return None
    measured = known.size_bytes if known.is_seen else None
    return {"source": known.source, "predicted_bytes": known.predicted_bytes, "measured_bytes": measured}


def told(path: Path) -> Report | None:
    """What Triton's memory is now, if a reporter tells it."""
    try:
        report = read(path)
    except OSError:
        return None
    return report if report is not None and abs(boot_seconds() - report.at) < OLD_SECONDS else None


def text(view: Mapping[str, Any]) -> str:
    """The sum as a bar, then the models, the largest first."""
    rows = []
    records = [(model["id"], model["adapter"]) for model in view["models"] if model["adapter"]]
    for name, record in sorted(records, key=lambda each: -each[1]["size_bytes"]):
        known = record["size"] or {}
        amounts = (record["size_bytes"], known.get("predicted_bytes"), known.get("measured_bytes"))
        size, predicted, measured = (short(amount) if amount else "-" for amount in amounts)
        cells = (size, known.get("source", "-"), predicted, measured, age(view["time"] - record["since"]), record["state"])
        rows.append((" ", cells, name))
    return "\n".join([_bar(view["memory"]), "", *table(COLUMNS, rows)]) + "\n"


def _bar(memory: Mapping[str, Any]) -> str:
    """The sum of what ModelMesh was told, against the capacity; and what Triton takes in truth."""
    models, capacity, used, limit = (memory[name] for name in ("told_bytes", "capacity_bytes", "used_bytes", "limit_bytes"))
    words = f"{short(models)} of models" + (f" of {short(capacity)} capacity" if capacity else "")
    truth = "sizes are estimates" if used is None else f"Triton takes {short(used)}" + (f" of {short(limit)}" if limit else "")
    bar = f"[{'#' * min(BAR_WIDTH, round(BAR_WIDTH * models / capacity)):.<{BAR_WIDTH}}] " if capacity else ""
    return f"{bar}{words}; {truth}"
