"""Whether registry, index and folder agree is always told, and never acted on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest
from structlog.testing import capture_logs

from adapter.errors import ServerError
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.looks import LOOK_SECONDS
from adapter.model import Layout
from adapter.telemetry.metrics import INVENTORY_DRIFT
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")
AGREED = {"lost": 0, "not_serving": 0, "no_folder": 0, "unknown": 0}
LOOKED = LOOK_SECONDS + 5
"""Seconds after which a look has been made, whenever the last one was."""


def told() -> dict[str, float]:
    """The metric, by kind."""
    return {sample.labels["kind"]: sample.value for metric in INVENTORY_DRIFT.collect() for sample in metric.samples}


async def started(make: Callable[[], RuntimeLifecycle]) -> RuntimeLifecycle:
    """A lifecycle that has found nothing. Fixtures live in real time: what they start never sees the test's minutes pass."""
    lifecycle = make()
    lifecycle.start()
    await asyncio.sleep(2)
    return lifecycle


@pytest.fixture
def logged() -> Iterator[Callable[[], list[str]]]:
    """Log lines of the audit since the last call."""
    with capture_logs() as lines:

        def taken() -> list[str]:
            found = [line["event"] for line in lines if line["event"].startswith("inventory.")]
            lines.clear()
            return found

        yield taken


async def test_all_kinds_are_there_from_the_start(make: Callable[[], RuntimeLifecycle]) -> None:
    INVENTORY_DRIFT.labels("lost").set(3)  # of an earlier test
    make()

    assert told() == AGREED


async def drifted(world: World, kind: str) -> None:
    """Another client changes Triton or the volume while `a` is loaded."""
    match kind:
        case "lost":
            world.memory.clear()
            world._asked.clear()  # as if its restart had not been noticed
        case "not_serving":
            world.memory["a"] = "UNAVAILABLE"
        case "no_folder":
            world.placed.clear()
        case "unknown":
            world.placed["b"] = Layout({})
            world.memory["b"] = "READY"


@pytest.mark.parametrize("kind", list(AGREED))
async def test_a_disagreement_is_told_once_by_its_kind(
    kind: str, make: Callable[[], RuntimeLifecycle], world: World, logged: Callable[[], list[str]]
) -> None:
    lifecycle = await started(make)
    await lifecycle.load(A)
    await asyncio.sleep(LOOKED)
    await drifted(world, kind)
    world.trace.clear()
    await asyncio.sleep(3 * LOOKED)

    assert told() == AGREED | {kind: 1}
    assert logged() == ["inventory.drift"]
    assert set(world.trace) == {"index", "inventory"}


async def test_a_trouble_that_has_gone_is_soon_forgotten(
    make: Callable[[], RuntimeLifecycle], world: World, logged: Callable[[], list[str]]
) -> None:
    lifecycle = await started(make)
    await lifecycle.load(A)
    world.memory["a"] = "UNAVAILABLE"
    await asyncio.sleep(LOOKED)
    assert told()["not_serving"] == 1
    world.memory["a"] = "READY"
    await asyncio.sleep(6)

    assert told() == AGREED
    assert logged() == ["inventory.drift", "inventory.agrees"]


async def test_nothing_is_compared_while_a_purge_runs(make: Callable[[], RuntimeLifecycle], world: World) -> None:
    lifecycle = await started(make)
    await lifecycle.load(A)
    await asyncio.sleep(LOOKED)
    world.hold("purge")
    await lifecycle.status()
    world.memory.clear()
    world.trace.clear()
    lifecycle._reconciler._has_news.set()
    await asyncio.sleep(2 * LOOKED)
    assert "index" not in world.trace
    world.let_go("purge")
    await asyncio.sleep(LOOKED)

    assert told() == AGREED
    assert "index" in world.trace


async def test_a_return_of_triton_during_a_look_is_no_disagreement(make: Callable[[], RuntimeLifecycle], world: World) -> None:
    """What the new Triton lists says nothing of what the old one had: the models are lost, and come back."""
    lifecycle = await started(make)
    await lifecycle.load(A)
    world.hold("index")
    await world.until_held("index")
    world.restart_triton()
    world.hold("load")
    await asyncio.sleep(1)
    world.let_go("index")
    await world.until_held("load")
    seen = told()
    world.let_go("load")

    assert seen == AGREED


@pytest.mark.parametrize("failure", [ServerError("Triton cannot list its folder"), RuntimeError("?")])
async def test_a_look_that_fails_is_not_the_last_one(failure: Exception, make: Callable[[], RuntimeLifecycle], world: World) -> None:
    lifecycle = await started(make)
    await asyncio.sleep(1)
    await lifecycle.load(A)
    world.fail("inventory", failure)
    world.memory["a"] = "UNAVAILABLE"
    await asyncio.sleep(3 * LOOKED)

    assert told()["not_serving"] == 1
