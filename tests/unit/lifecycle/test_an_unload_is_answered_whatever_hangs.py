"""Each neighbour hangs at each point, in each thing that may be under way: the unload is answered within its bound, and says why."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from adapter.errors import UnloadUnfinished
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import Layout
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")
BOUND_SECONDS = 170
Make = Callable[[], RuntimeLifecycle]


async def loaded(world: World, make: Make) -> RuntimeLifecycle:
    lifecycle = make()
    lifecycle.start()
    await lifecycle.load(A)
    return lifecycle


async def a_load(world: World, make: Make, point: str) -> RuntimeLifecycle:
    lifecycle = make()
    lifecycle.start()
    await asyncio.sleep(1)
    world.hold(point)
    call = asyncio.create_task(lifecycle.load(A))
    call.add_done_callback(asyncio.Task.exception)
    return lifecycle


async def a_second_load(world: World, make: Make, point: str) -> RuntimeLifecycle:
    """Of what is loaded: it is compared, and goes first."""
    lifecycle = await loaded(world, make)
    world.add("models/b", etag="e2")
    world.hold(point)
    call = asyncio.create_task(lifecycle.load(a_spec("models/a" if point == "ready" else "models/b", model_id="a", model_type="onnx")))
    call.add_done_callback(asyncio.Task.exception)
    return lifecycle


async def an_unload(world: World, make: Make, point: str) -> RuntimeLifecycle:
    """Its caller has gone."""
    lifecycle = await loaded(world, make)
    world.hold(point)
    call = asyncio.create_task(lifecycle.unload("a"))
    asyncio.get_running_loop().call_later(20, call.cancel)
    return lifecycle


async def a_restore(world: World, make: Make, point: str) -> RuntimeLifecycle:
    lifecycle = await loaded(world, make)
    world.hold(point)
    world.restart_triton()
    return lifecycle


async def a_purge(world: World, make: Make, point: str) -> RuntimeLifecycle:
    lifecycle = await loaded(world, make)
    world.hold(point)
    await lifecycle.status()
    return lifecycle


async def a_take_over(world: World, make: Make, point: str) -> RuntimeLifecycle:
    await (await loaded(world, make)).close()
    world.placed["half"] = Layout({})
    world.hold(point)
    lifecycle = make()
    lifecycle.start()
    return lifecycle


@pytest.mark.parametrize(
    ("under_way", "point"),
    [
        *((a_load, point) for point in ("open", "fetch", "place", "slot", "load", "measure", "written")),
        *((a_second_load, point) for point in ("ready", "unload", "remove", "release", "written")),
        *((an_unload, point) for point in ("unload", "remove", "release", "written")),
        *((a_restore, point) for point in ("index", "identities", "verify", "slot", "load", "measure", "written")),
        *((a_purge, point) for point in ("verify", "purge", "release", "written")),
        *((a_take_over, point) for point in ("index", "inventory", "unload", "remove", "written")),
    ],
)
async def test_whatever_hangs(
    world: World, make: Make, under_way: Callable[[World, Make, str], Awaitable[RuntimeLifecycle]], point: str
) -> None:
    lifecycle = await under_way(world, make, point)
    async with asyncio.timeout(60):
        await world.until_held(point)
    await asyncio.sleep(30)

    began, why = asyncio.get_running_loop().time(), None
    try:
        await lifecycle.unload("a")
    except UnloadUnfinished as unfinished:
        why = unfinished.text
    assert asyncio.get_running_loop().time() - began < BOUND_SECONDS + 0.001
    if why is None:
        assert "a" not in world.memory
        assert "a" not in world.placed
    else:
        assert why.endswith("; the model was not freed within 170 s")
        assert not why.startswith(";")

    world.let_go(point)
    await lifecycle.unload("a")
    assert "a" not in world.memory
    assert "a" not in world.placed
