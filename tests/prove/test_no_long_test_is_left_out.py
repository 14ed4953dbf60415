"""`scripts/prove` leaves no long test out."""

from __future__ import annotations

from pathlib import Path

from tests.prove import phases


def test_every_long_test_belongs_to_a_phase() -> None:
    """A test that `scripts/test` leaves out and no phase runs would prove nothing."""
    folders = {word for _, words in phases.SUITES.values() for word in words if word.startswith("tests/")}
    others = {"tests/fault/test_triton_comes_back.py", "tests/fuzz"}
    files = [path for path in Path(phases.TOP, "tests").rglob("test_*.py") if "mark.long" in path.read_text() and path != Path(__file__)]

    named = [path.relative_to(phases.TOP).as_posix() for path in files]
    assert [name for name in named if not any(name.startswith(folder) for folder in folders | others)] == []
