"""How ids, bytes and times look in the tables of a verb, and the tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import timedelta


def table(columns: Iterable[tuple[str, str]], rows: Iterable[tuple[str, Sequence[str], str]]) -> Iterator[str]:
    """
    Lines of a table.

    Args:
        columns: title, and alignment and width as in a format.
        rows: a mark, the cells, and the id, which comes last and is never cut.
    """
    form = "  ".join(f"{{:{size}}}" for _, size in columns)
    yield f"  {form.format(*(title for title, _ in columns))}  MODEL"
    for mark, cells, name in rows:
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
