"""READY means empty; a restart of the adapter alone keeps what Triton serves."""

import asyncio
from collections.abc import Callable

import pytest

from adapter.errors import Draining, VolumeFailed, WrongServer
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.reconciler import READY_SECONDS
from adapter.lifecycle.states import State
from adapter.model import Layout
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")


async def test_polls_join_one_purge_and_get_starting_until_it_ends(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("purge")
    states = [await lifecycle.status() for _ in range(3)]
    world.let_go("purge")

    assert [state.is_ready for state in states] == [False, False, False]
    assert (await lifecycle.status()).is_ready
    assert world.trace.count("purge") == 1


async def test_a_wrong_triton_stays_starting_and_is_named(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Never FAILING: ModelMesh would give up for good."""
    world.fail("verify", WrongServer("Triton is not in explicit mode"), times=2)

    first, second, third = [await lifecycle.status() for _ in range(3)]

    assert (first.is_ready, first.problem) == (False, "Triton is not in explicit mode")
    assert (second.is_ready, third.is_ready) == (False, True)


async def test_a_drain_answers_unloads(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    drain = asyncio.create_task(lifecycle.drain(25))
    await asyncio.sleep(0.5)
    await lifecycle.unload("a")

    assert await drain
    assert world.is_empty


async def test_a_drain_undoes_a_load_that_does_not_end(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("fetch")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("fetch")

    assert await lifecycle.drain(25)
    with pytest.raises(Draining):
        await load
    assert world.is_empty


async def test_a_modelmesh_that_does_not_ask_again_holds_loads_up_for_ten_seconds(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("purge")
    assert not (await lifecycle.status()).is_ready
    began = asyncio.get_running_loop().time()
    load = asyncio.create_task(lifecycle.load(A))
    world.let_go("purge")
    await load

    assert READY_SECONDS <= asyncio.get_running_loop().time() - began < READY_SECONDS + 2


@pytest.mark.parametrize(
    ("failure", "text"), [(WrongServer("restricted"), "restricted"), (RuntimeError("?"), "internal error of the adapter")]
)
async def test_a_take_over_that_fails_says_so_and_opens_the_gate(
    failure: Exception, text: str, world: World, make: Callable[[], RuntimeLifecycle]
) -> None:
    world.fail("index", failure)
    lifecycle = make()
    lifecycle.start()
    await asyncio.sleep(1)
    assert text in (lifecycle.readiness() or "")

    assert (await lifecycle.load(A)).size_bytes == 1_250_000


async def test_a_take_over_that_has_failed_is_made_again(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """What was loaded, unloaded or is under way since the failure is not touched: the index may show it as it was."""
    for name in ("serves", "went", "going"):
        world.placed[name], world.memory[name] = Layout({}), "READY"
    world.placed["half"] = Layout({})
    world.fail("index", WrongServer("restricted"), times=2)
    lifecycle = make()
    lifecycle.start()
    await until_told(lifecycle, "restricted")
    await lifecycle.unload("went")
    await lifecycle.load(A)
    world.hold("remove")
    going = asyncio.create_task(lifecycle.unload("going"))
    await world.until_held("remove")
    assert not lifecycle.registry.is_complete
    await asyncio.sleep(60)

    assert lifecycle.registry.is_complete
    assert lifecycle.readiness() is None
    world.let_go("remove")
    await going
    await asyncio.sleep(5)
    assert {model.model_id: model.state for model in lifecycle.registry} == {"a": State.LOADED, "serves": State.LOADED}
    assert set(world.placed) == {"a", "serves"}


async def until_told(lifecycle: RuntimeLifecycle, words: str) -> None:
    async with asyncio.timeout(60):
        while words not in (lifecycle.readiness() or ""):
            await asyncio.sleep(0.1)


async def test_a_sweep_that_fails_does_not_leave_the_adapter_unready(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """What serves is taken over: nothing would ask again, since ModelMesh has no reason to load anything."""
    world.placed["serves"], world.memory["serves"] = Layout({}), "READY"
    world.fail("sweep", VolumeFailed("the models cannot be listed"))
    lifecycle = make()
    lifecycle.start()
    await asyncio.sleep(70)

    assert lifecycle.registry.is_complete
    assert lifecycle.readiness() is None


async def test_what_triton_loses_while_the_take_over_fails_comes_back(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    world.fail("inventory", VolumeFailed("the models cannot be listed"), times=1000)
    lifecycle = make()
    lifecycle.start()
    await until_told(lifecycle, "cannot be listed")
    await lifecycle.load(A)
    world.restart_triton()
    await asyncio.sleep(30)

    assert not lifecycle.registry.is_complete
    assert world.memory == {"a": "READY"}
