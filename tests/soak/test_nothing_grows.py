"""Many cycles of load and unload, with reloads, cancels and failures among them: nothing grows, and nothing is left."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest
from grpc.aio import Metadata

from tests.real.install import CannotRunError
from tests.soak.curves import Bound, Curve, grown
from tests.soak.soak import BOUNDS, soaked
from tests.soak.traffic import Traffic

REAL_SHARE = 3


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


def test_a_share_bounds_what_is_large() -> None:
    assert not grown([curve([100.0] * 20 + [104.0] * 10, Bound(1, 0.05))])
    assert grown([curve([100.0] * 20 + [106.0] * 10, Bound(1, 0.05))])


def test_a_curve_is_drawn_from_low_to_high() -> None:
    assert curve([0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], Bound(1)).drawn(9) == "▁▂▃▄▅▆▇██"
    assert curve([7.0] * 9, Bound(1)).drawn(9) == "▁" * 9


@pytest.mark.parametrize("bed", ["fake", pytest.param("real", marks=pytest.mark.real_triton)])
@pytest.mark.timeout(1800)
async def test_nothing_grows_over_many_cycles(bed: str, tmp_path: Path, request: pytest.FixtureRequest, shown: Callable[..., None]) -> None:
    asked = request.config.getoption("--soak")
    cycles = asked if bed == "fake" else max(1, asked // REAL_SHARE)
    try:
        outcome = await soaked(bed, cycles, tmp_path)
    except CannotRunError as reason:
        pytest.skip(f"the real Triton cannot run here: {reason}")

    title = f"soak over the {bed} Triton (python -m tests.soak --triton {bed} --cycles {cycles}): {outcome.note}"
    for each in outcome.curves:
        shown(title, **each.row())
    assert {each.name for each in outcome.curves} >= {name for name, (_, bound) in BOUNDS.items() if bound}
    assert outcome.problems == []
    assert grown(outcome.curves) == []


class Gone:
    """A runtime whose Triton has ended: each call would take all of its budget."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, method: str) -> Callable[..., asyncio.Task[None]]:
        return lambda request, timeout: asyncio.create_task(self._call())

    async def _call(self) -> None:
        self.calls += 1
        raise grpc.aio.AioRpcError(grpc.StatusCode.UNAVAILABLE, Metadata(), Metadata(), "Triton is gone")


async def test_a_run_in_which_everything_fails_ends_soon() -> None:
    runtime = Gone()
    traffic = Traffic(runtime, random.Random(1), lambda _: None)
    await traffic.stretch(3_000, lanes=8)

    assert traffic.is_lost
    assert runtime.calls < 100
