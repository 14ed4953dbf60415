"""What a load was waiting for when its budget ran out comes first in the error, the budget after it."""

import asyncio

import pytest

from adapter.errors import BudgetExceeded, ModelRefused
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.states import State
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


async def test_a_failure_whose_undo_takes_long_is_told_in_its_own_words(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The budget ends before the patience with the undo does: the cause is known, and is what the caller reads."""
    world.hold("load")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("load")
    world.hold("unload")
    await asyncio.sleep(87.5)
    world.fail("load", ModelRefused("no such backend"))
    world.let_go("load")

    with pytest.raises(ModelRefused, match="no such backend"):
        await load

    world.let_go("unload")
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


async def test_behind_a_load_of_other_content_that_is_named(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The earlier load goes on for as long as one of its own callers waits."""
    world.hold("fetch")
    first = asyncio.create_task(lifecycle.load(A))
    await world.until_held("fetch")
    asyncio.get_running_loop().call_later(30, lambda: callers.append(asyncio.create_task(lifecycle.load(A))))
    callers = [first]

    error = await over_budget(lifecycle, a_spec("models/b", model_id="a", model_type="onnx"))

    pull = "waiting for the files of memory://models/a for 88.0 s"
    assert error.text == f"waiting for the load of 'a', under way for 88.0 s ({pull})" + BUDGET
    world.let_go("fetch")
    await callers[1]


async def test_a_question_that_triton_does_not_answer_stays_within_the_budget(lifecycle: RuntimeLifecycle, world: World) -> None:
    """A loaded model is asked for before an equal load is confirmed; it serves on."""
    await lifecycle.load(A)
    world.hold("ready")

    error = await over_budget(lifecycle)

    assert (error.text, error.phases) == ("Triton has not said whether it serves the model" + BUDGET, "check 88.0 s")
    await asyncio.sleep(1)
    assert lifecycle.registry.find("a").state is State.LOADED


async def test_an_old_copy_that_triton_does_not_free_is_named(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Changed content: unloaded before it is loaded."""
    await lifecycle.load(A)
    world.add("models/a", etag="e2")
    world.hold("unload")

    error = await over_budget(lifecycle)

    assert (error.text, error.phases) == ("Triton has a as READY" + BUDGET, "undo 88.0 s")


async def test_who_waits_for_storage_has_a_little_less_than_the_budget(lifecycle: RuntimeLifecycle, world: World) -> None:
    """So that it can say itself what was wrong: the undo and the answer fit into the rest. The budget begins with the call."""
    world.hold("fetch")
    loop = asyncio.get_running_loop()
    begun, load = loop.time(), asyncio.create_task(lifecycle.load(A))
    await world.until_held("fetch")
    assert lifecycle.registry.operation_on("a").waits.until == begun + 88 - 1
    world.let_go("fetch")
    await load


async def test_a_load_may_wait_for_as_long_as_one_of_its_callers_does(lifecycle: RuntimeLifecycle, world: World) -> None:
    """A caller that joins has a budget of its own; one that goes takes its budget along."""
    world.hold("fetch")
    loop = asyncio.get_running_loop()
    begun, first = loop.time(), asyncio.create_task(lifecycle.load(A))
    await world.until_held("fetch")
    waits = lifecycle.registry.operation_on("a").waits
    await asyncio.sleep(20)
    second = asyncio.create_task(lifecycle.load(A))
    await asyncio.sleep(1)
    assert waits.until == begun + 20 + 87
    second.cancel()
    await asyncio.sleep(1)
    assert waits.until == begun + 87
    world.let_go("fetch")
    await first
