"""Cancel means undone, at whatever point it comes; an unload overtakes a load and leaves nothing."""

import asyncio
import contextlib

import pytest

from adapter.errors import ServerError
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.states import State
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")


async def start_and_hold(lifecycle: RuntimeLifecycle, world: World, point: str) -> asyncio.Task[object]:
    world.hold(point)
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held(point)
    return load


async def cancel(task: asyncio.Task[object]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("point", ["ready", "open"])
async def test_a_cancelled_check_of_a_loaded_model_changes_nothing(lifecycle: RuntimeLifecycle, world: World, point: str) -> None:
    await lifecycle.load(A)
    load = await start_and_hold(lifecycle, world, point)
    await cancel(load)
    world.let_go(point)
    await asyncio.sleep(1)

    assert lifecycle.registry.find("a").state is State.LOADED
    assert world.memory == {"a": "READY"}


async def test_a_load_cancelled_before_its_first_step_ends_too(lifecycle: RuntimeLifecycle, world: World) -> None:
    load = asyncio.create_task(lifecycle.load(A))
    await asyncio.sleep(0)
    await cancel(load)
    await asyncio.wait_for(lifecycle.unload("a"), 5)

    assert len(lifecycle.registry) == 0


async def test_a_load_goes_on_while_one_caller_is_left(lifecycle: RuntimeLifecycle, world: World) -> None:
    first = await start_and_hold(lifecycle, world, "fetch")
    second = asyncio.create_task(lifecycle.load(A))
    await asyncio.sleep(0)
    await cancel(first)
    world.let_go("fetch")

    assert (await second).size_bytes == 1_250_000


async def test_a_load_after_a_cancelled_one_does_not_join_it(lifecycle: RuntimeLifecycle, world: World) -> None:
    load = await start_and_hold(lifecycle, world, "load")
    await cancel(load)
    again = asyncio.create_task(lifecycle.load(A))
    await asyncio.sleep(1)
    world.let_go("load")

    assert (await again).size_bytes == 1_250_000
    assert world.trace.count("load a") == 2


async def test_a_load_over_a_failed_undo_finishes_the_undo_first(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.fail("unload", ServerError("Triton does not unload the model"))
    with pytest.raises(ServerError):
        await lifecycle.unload("a")
    world.trace.clear()

    await lifecycle.load(A)

    assert world.trace[0] == "unload a"


async def test_an_unload_outlives_its_caller(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    unload = asyncio.create_task(lifecycle.unload("a"))
    await asyncio.sleep(0.1)
    await cancel(unload)
    await asyncio.sleep(5)

    assert world.is_empty
