"""How ids, bytes and times look in the tables of a verb, the tables, and that of sizes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any

SIZES = (("SIZE", ">6"), ("SOURCE", "<9"), ("PREDICTED", ">9"), ("MEASURED", ">8"), ("SINCE", ">6"), ("STATE", "<9"))
BAR_WIDTH = 20
Row = tuple[str, Sequence[str], str]
"""A mark, the cells, and the id, which comes last and is never cut."""


def table(columns: Iterable[tuple[str, str]], rows: Iterable[Row]) -> Iterator[str]:
    """Lines of a table; of each column the title, and alignment and width as in a format."""
    form = "  ".join(f"{{:{size}}}" for _, size in columns)
    for mark, cells, name in ((" ", [title for title, _ in columns], "MODEL"), *rows):
        yield f"{mark} {form.format(*cells)}  {shown(name)}"


def shown(text: str) -> str:
    """What is safe on a terminal: whatever is not printable is written as an escape, and so is a backslash."""
    return "".join(
        letter if letter.isprintable() and letter != "\\" else letter.encode("unicode_escape", "backslashreplace").decode()
        for letter in text
    )


def short(size: float) -> str:
    """Bytes in few letters."""
    unit = ""
    for larger in "KMGTPE":
        if size >= (1000 if unit else 1024):
            size, unit = size / 1024, larger
    return f"{size:.0f}{unit}" if not unit or size >= 100 else f"{size:.3g}{unit}"


def age(time: timedelta) -> str:
    """Two units at most: 45s, 3m12s, 2h05m, 4d03h."""
    whole = max(0, int(time.total_seconds()))
    for size, unit, part, smaller in ((86400, "d", 3600, "h"), (3600, "h", 60, "m"), (60, "m", 1, "s")):
        if whole >= size:
            return f"{whole // size}{unit}{whole % size // part:02}{smaller}"
    return f"{whole}s"


def sizes(view: Mapping[str, Any]) -> str:
    """How much memory each model has and how that is known, of the view of all models: the sum as a bar, then the largest first."""
    rows = []
    records = [(model["id"], model["adapter"]) for model in view["models"] if model["adapter"]]
    for name, record in sorted(records, key=lambda each: -each[1]["size_bytes"]):
        known = record["size"] or {}
        amounts = (record["size_bytes"], known.get("predicted_bytes"), known.get("measured_bytes"))
        size, predicted, measured = (short(amount) if amount else "-" for amount in amounts)
        cells = (size, known.get("source", "-"), predicted, measured, age(view["time"] - record["since"]), record["state"])
        rows.append((" ", cells, name))
    told, capacity, used, limit = view["memory"].values()
    bar = f"[{'#' * min(BAR_WIDTH, round(BAR_WIDTH * told / capacity)):.<{BAR_WIDTH}}] " if capacity else ""
    words = f"{short(told)} of models" + (f" of {short(capacity)} capacity" if capacity else "")
    truth = "sizes are estimates" if used is None else f"Triton takes {short(used)}" + (f" of {short(limit)}" if limit else "")
    return "\n".join([f"{bar}{words}; {truth}", "", *table(SIZES, rows)]) + "\n"
