"""A mistake that could be made in the product, as a patch of its text; and all of them together."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Mistake:
    """One mistake. `what` outlives the patch, which is written anew when its package is rebuilt."""

    name: str
    what: str
    file: str
    """Below the top of the repository."""
    old: str
    """Occurs exactly once in the file."""
    new: str
    first: tuple[str, ...] = ()
    """Files of tests that should find it, below `tests/`."""

    @property
    def package(self) -> str:
        """`storage` of `adapter/storage/store.py`; `top` for the modules at the top of `adapter`."""
        parts = Path(self.file).parts
        return parts[0] if parts[0] != "adapter" else parts[1] if len(parts) > 2 else "top"

    def applied(self, text: str) -> str:
        """
        The file with the mistake in it.

        Raises:
            ValueError: the text that is replaced is not there, or more than once.
        """
        if text.count(self.old) != 1:
            raise ValueError(f"{self.name}: {self.file} has {text.count(self.old)} times: {self.old!r}")
        return text.replace(self.old, self.new)


def read(table: Path) -> tuple[Mistake, ...]:
    """All mistakes of a table."""
    return tuple(Mistake(**row | {"first": tuple(row.get("first", ()))}) for row in tomllib.loads(table.read_text())["mistake"])


TABLES = ("core", "storage", "rules", "fronts", "memory", "deploy")
MISTAKES = tuple(mistake for name in TABLES for mistake in read(Path(__file__).with_name(f"{name}.toml")))
