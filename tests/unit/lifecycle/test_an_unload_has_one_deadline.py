"""An unload is answered within its bound, whatever it meets, and the error names what it met."""

import asyncio
from collections.abc import Callable

import pytest

from adapter.errors import Superseded, UnloadUnfinished
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.reconciler import TAKING_OVER
from adapter.lifecycle.states import State
from adapter.telemetry.metrics import UNLOADS_UNFINISHED
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")
BOUND_SECONDS = 170


def now() -> float:
    return asyncio.get_running_loop().time()


def unfinished() -> float:
    return UNLOADS_UNFINISHED._value.get()


async def obstacle(lifecycle: RuntimeLifecycle) -> str:
    """What the unload of the model names, which ends with UnloadUnfinished exactly at the bound."""
    began = now()
    with pytest.raises(UnloadUnfinished) as raised:
        await lifecycle.unload("a")
    assert now() - began == pytest.approx(BOUND_SECONDS)
    assert raised.value.model_id == "a"
    named, bound = raised.value.text.split("; ")
    assert bound == "the model was not freed within 170 s"
    return named


async def test_a_triton_that_never_frees_is_named_and_counted(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.hold("unload")
    before = unfinished()

    assert await obstacle(lifecycle) == "Triton has a as READY"

    await asyncio.sleep(0.1)
    assert lifecycle.registry.find("a").state is State.FAILED
    assert unfinished() == before + 1


async def test_an_unload_behind_an_undo_that_never_ends(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Triton cannot cancel the load that the unload has overtaken, and never ends it."""
    world.hold("load")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("load")
    await asyncio.sleep(10)

    named = await obstacle(lifecycle)  # the undo has the same bound: whether it has just given up is left to the loop
    assert named.startswith("waiting for the undo of the load of 'a', under way for 170.0 s")

    with pytest.raises(Superseded):
        await load


async def test_a_purge_that_never_ends_names_what_triton_holds(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.hold("purge")
    await lifecycle.status()

    assert await obstacle(lifecycle) == "purging: Triton has not freed 'a' yet"

    assert lifecycle.readiness() == "purging: Triton has not freed 'a' yet"


async def test_a_purge_names_the_operations_that_it_lets_end_first(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.hold("unload")
    first = asyncio.create_task(lifecycle.unload("a"))
    await world.until_held("unload")
    await asyncio.sleep(100)

    state = await lifecycle.status()

    assert state.problem == "purging: waiting for the unload of 'a', under way for 101.0 s (Triton has a as READY)"
    with pytest.raises(UnloadUnfinished):
        await first


async def test_a_take_over_that_never_ends_is_named(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """The index is not to be had: ModelMesh hears of it before it gives up by itself, and repeats."""
    world.hold("index")
    lifecycle = make()
    lifecycle.start()

    assert await obstacle(lifecycle) == TAKING_OVER


async def test_a_triton_that_is_away_is_the_obstacle_at_the_gate(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    world.hold("index")
    world.problem = "Triton does not answer"
    lifecycle = make()
    lifecycle.start()

    assert await obstacle(lifecycle) == "Triton does not answer"


async def test_files_that_cannot_be_removed_are_the_obstacle(lifecycle: RuntimeLifecycle, world: World) -> None:
    """A volume that hangs: Triton has freed the model, and is not blamed."""
    await lifecycle.load(A)
    world.hold("remove")
    before = unfinished()

    assert await obstacle(lifecycle) == "waiting for the volume to give up the model's files for 168.8 s"

    assert unfinished() == before
    world.let_go("remove")
    await lifecycle.unload("a")
    assert world.is_empty


async def test_a_later_unload_goes_on_when_an_earlier_one_gives_up(lifecycle: RuntimeLifecycle, world: World) -> None:
    """It has joined the earlier one; what is left of its own time is used to ask Triton again."""
    await lifecycle.load(A)
    world.hold("unload")
    first = asyncio.create_task(lifecycle.unload("a"))
    await asyncio.sleep(100)
    second = asyncio.create_task(lifecycle.unload("a"))
    with pytest.raises(UnloadUnfinished):
        await first
    world.let_go("unload")

    await second

    assert world.is_empty
    assert world.trace.count("unload a") == 2


async def test_a_later_unload_shares_the_success_of_an_earlier_one(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    first = asyncio.create_task(lifecycle.unload("a"))
    await asyncio.sleep(0.5)
    await asyncio.gather(first, lifecycle.unload("a"))

    assert world.trace.count("unload a") == 1


async def test_what_was_not_freed_in_time_is_freed_without_a_further_call(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Ten seconds later, and again after longer pauses."""
    await lifecycle.load(A)
    world.hold("unload")
    await obstacle(lifecycle)
    await asyncio.sleep(BOUND_SECONDS)
    world.let_go("unload")
    await asyncio.sleep(60)

    assert lifecycle.registry.find("a") is None
    assert world.is_empty


async def test_a_drain_does_not_wait_for_a_take_down_without_a_call(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The next process goes on with it. One that a call waits for is let end."""
    await lifecycle.load(A)
    world.hold("unload")
    await obstacle(lifecycle)
    await asyncio.sleep(20)
    assert lifecycle.registry.operation_on("a") is not None
    began = now()

    assert await lifecycle.drain(30)

    assert now() - began < 5
    assert world.records["a"].state == "failed"


async def test_an_unload_behind_a_purge_gets_no_second_bound(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The purge ends after 100 s; the unload that waited for it has 70 s left."""
    world.hold("purge")
    await lifecycle.status()
    world.hold("unload")
    asyncio.get_running_loop().call_later(100, world.let_go, "purge")

    assert await obstacle(lifecycle) == "Triton has a as None"

    assert world.trace.count("unload a") == 1


async def test_a_drain_waits_for_a_take_down_that_a_call_has_joined(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.hold("unload")
    await obstacle(lifecycle)
    await asyncio.sleep(20)
    unload = asyncio.create_task(lifecycle.unload("a"))
    await asyncio.sleep(1)
    drain = asyncio.create_task(lifecycle.drain(30))
    await asyncio.sleep(5)
    world.let_go("unload")

    await unload
    assert await drain
    assert world.is_empty
