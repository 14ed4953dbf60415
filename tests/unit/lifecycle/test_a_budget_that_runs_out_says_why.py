"""What a load was waiting for when its budget ran out comes first in the error, the budget after it."""

import asyncio

import pytest

from adapter.errors import BudgetExceeded
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import ModelSpec
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")
BUDGET = "; not loaded within 88.0 s (the announced timeout is 90 s)"


async def over_budget(lifecycle: RuntimeLifecycle, spec: ModelSpec = A) -> BudgetExceeded:
    with pytest.raises(BudgetExceeded) as raised:
        await lifecycle.load(spec)
    assert raised.value.text.endswith(BUDGET)
    assert raised.value.model_id == spec.model_id
    return raised.value


@pytest.mark.parametrize(
    ("point", "cause", "phases"),
    [
        ("open", "waiting for the listing of memory://models/a for 88.0 s", "list 88.0 s"),
        ("fetch", "waiting for the files of memory://models/a for 88.0 s", "pull 88.0 s"),
        ("place", "waiting for the volume to take the model's files for 88.0 s", "place 88.0 s"),
        ("load", "Triton has a as LOADING", "triton 88.0 s"),
        ("measure", "Triton has not told the size of the model", "triton 1.0 s, measure 87.0 s"),
    ],
)
async def test_the_step_under_way_is_named(lifecycle: RuntimeLifecycle, world: World, point: str, cause: str, phases: str) -> None:
    """A little below the announced 90 s, so that our text arrives before ModelMesh's timeout."""
    world.hold(point)

    error = await over_budget(lifecycle)

    assert (error.text, error.phases) == (cause + BUDGET, phases)
    world.let_go(point)
    await asyncio.sleep(5)
    assert world.is_empty


async def test_a_full_queue_names_the_models_that_hold_the_slots(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("load")
    others = [asyncio.create_task(lifecycle.load(a_spec("models/a", model_id=name, model_type="onnx"))) for name in ("x", "y")]
    await world.until_held("load")
    await asyncio.sleep(0.1)

    error = await over_budget(lifecycle)

    assert (error.text, error.phases) == ("Triton is loading x, y" + BUDGET, "queue 88.0 s")
    for other in others:
        with pytest.raises(BudgetExceeded):
            await other


async def test_a_triton_that_is_away_is_named_before_the_queue(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("slot")
    world.problem = "Triton does not answer"

    assert (await over_budget(lifecycle)).text == "Triton does not answer" + BUDGET


async def test_at_the_gate_the_purge_is_named(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(a_spec("models/a", model_id="x", model_type="onnx"))
    world.hold("purge")
    await lifecycle.status()

    error = await over_budget(lifecycle)

    assert (error.text, error.phases) == ("purging: Triton has not freed 'x' yet" + BUDGET, "queue 88.0 s")


async def test_behind_an_earlier_unload_that_is_named(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.hold("unload")
    unload = asyncio.create_task(lifecycle.unload("a"))
    await world.until_held("unload")
    await asyncio.sleep(10)

    error = await over_budget(lifecycle)

    assert error.text == "waiting for the unload of 'a', under way for 98.0 s (Triton has a as READY)" + BUDGET
    world.let_go("unload")
    await unload
