"""Many cycles of load and unload, with reloads, cancels and failures among them: nothing grows, and nothing is left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.soak.curves import Bound, Curve, grown
from tests.soak.soak import BOUNDS, soaked

ALWAYS_HELD = ("entries kept", "artifacts known", "clients of stores", "secrets remembered")
"""Never empty, even at rest."""


def curve(values: list[float], bound: Bound) -> Curve:
    return Curve("x", "", bound, values)


def test_a_leak_is_seen_and_noise_is_none() -> None:
    """One more each time is a leak, however long the run gets warm; jumps to and fro, and one outlier, are not."""
    bound = Bound(3)
    assert grown([curve([float(number) for number in range(30)], bound)])
    assert grown([curve([0.0] * 10 + [float(number) for number in range(20)], bound)])
    assert not grown([curve([5.0, 9.0, 6.0] * 10, bound)])
    assert not grown([curve([0.0, 20.0, 40.0, 60.0] + [70.0] * 26, bound)])
    assert not grown([curve([5.0] * 29 + [500.0], bound)])
    assert not grown([curve([float(-number) for number in range(30)], bound)])


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
