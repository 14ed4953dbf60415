"""Before a step that others can see, the journal has what it tells of: kill -9 comes at any moment."""

import asyncio

import pytest

from adapter.errors import BudgetExceeded, Draining, UnloadUnfinished
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")


async def test_no_load_is_answered_that_is_not_written(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("measure")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("measure")
    world.hold("written")
    world.let_go("measure")
    await asyncio.sleep(5)
    assert not load.done()

    world.let_go("written")
    await load


async def test_a_caller_that_goes_before_the_answer_is_written_has_had_nothing(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("measure")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("measure")
    world.hold("written")
    world.let_go("measure")
    await world.until_held("written")
    load.cancel()
    await asyncio.sleep(1)
    world.let_go("written")
    await asyncio.sleep(5)

    assert world.is_empty
    assert len(lifecycle.registry) == 0


@pytest.mark.parametrize("is_known", [True, False])
async def test_triton_is_told_of_no_unload_that_is_not_written(lifecycle: RuntimeLifecycle, world: World, is_known: bool) -> None:
    if is_known:
        await lifecycle.load(A)
    world.hold("written")
    unload = asyncio.create_task(lifecycle.unload("a"))
    await world.until_held("written")
    await asyncio.sleep(5)

    assert "unload a" not in world.trace
    assert world.records["a"].state == "unloading"
    world.let_go("written")
    await unload


async def test_no_unload_is_answered_that_is_not_written(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.hold("remove")
    unload = asyncio.create_task(lifecycle.unload("a"))
    await world.until_held("remove")
    world.hold("written")
    world.let_go("remove")
    await asyncio.sleep(5)
    assert not unload.done()
    assert "a" not in world.records

    world.let_go("written")
    await unload


async def test_a_confirmation_is_written_before_its_answer(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The order of a restore is the order in which ModelMesh has asked."""
    await lifecycle.load(A)
    await asyncio.sleep(10)
    world.hold("written")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("written")
    await asyncio.sleep(1)
    assert not load.done()
    assert world.records["a"].confirmed > 10

    world.let_go("written")
    await load


@pytest.mark.parametrize("is_loaded", [True, False])
async def test_a_call_that_a_hanging_volume_keeps_from_its_end_says_so(lifecycle: RuntimeLifecycle, world: World, is_loaded: bool) -> None:
    if is_loaded:
        await lifecycle.load(A)
    world.hold("written")

    with pytest.raises(BudgetExceeded, match=r"^waiting for the volume to take what the journal writes for \d+\.\d s; not loaded within"):
        await lifecycle.load(A)
    with pytest.raises(UnloadUnfinished, match="waiting for the volume to take what the journal writes"):
        await lifecycle.unload("a")
    world.let_go("written")
    await lifecycle.unload("a")

    assert world.is_empty


async def test_a_purge_that_a_hanging_volume_keeps_from_its_end_says_so(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.hold("written")

    await asyncio.gather(*(lifecycle.status() for _ in range(3)))
    assert lifecycle.readiness() == "purging: waiting for the volume to take what the journal writes"
    world.let_go("written")
    await asyncio.sleep(5)

    assert (await lifecycle.status()).is_ready
    assert world.is_empty


async def test_a_drain_ends_although_the_volume_hangs(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("written")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("written")

    assert await lifecycle.drain(20) is False
    with pytest.raises(Draining):
        await load
    world.let_go("written")
    await asyncio.sleep(5)

    assert world.is_empty
