"""Many cycles of load and unload, with reloads, cancels and failures among them: nothing grows, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.curves import grown
from tests.soak.soak import BOUNDS, soaked

ALWAYS_HELD = ("entries kept", "artifacts known", "clients of stores", "secrets remembered")
"""Never empty, even at rest."""


@pytest.mark.timeout(1800)
async def test_nothing_grows_over_many_cycles(tmp_path: Path, request: pytest.FixtureRequest, shown: Callable[..., None]) -> None:
    """Over the fake Triton; `scripts/prove soak-real` has the real one."""
    cycles = request.config.getoption("--soak")
    outcome = await soaked("fake", cycles, tmp_path)

    title = f"soak over the fake Triton (python -m tests.soak --cycles {cycles}): {outcome.note}"
    for each in outcome.curves:
        shown(title, **each.row())
    curves = {each.name: each for each in outcome.curves}
    assert set(curves) >= {name for name, (_, bound) in BOUNDS.items() if bound}
    assert all(max(curves[name].values) > 0 for name in ALWAYS_HELD), "else the counts see nothing"
    assert outcome.problems == []
    assert grown(outcome.curves) == []
