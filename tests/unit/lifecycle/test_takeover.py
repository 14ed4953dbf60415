"""READY means empty; a restart of the adapter alone keeps what Triton serves."""

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from adapter.errors import Draining, ModelNotLoaded, ServerError, Superseded, WrongServer
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.reconciler import NOT_ASKED, READY_SECONDS, TAKING_OVER
from adapter.lifecycle.states import State
from adapter.model import RESERVED_IDS, Layout
from adapter.settings.capacity import CapacitySettings
from tests.builders import a_spec
from tests.fakes.world import World, ports

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")
B = a_spec("models/a", model_id="b", model_type="onnx")


async def test_polls_join_one_purge_and_get_starting_until_it_ends(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("purge")
    states = [await lifecycle.status() for _ in range(3)]
    world.let_go("purge")

    assert [state.is_ready for state in states] == [False, False, False]
    assert (await lifecycle.status()).is_ready
    assert world.trace.count("purge") == 1


async def test_a_question_after_ready_purges_again(lifecycle: RuntimeLifecycle, world: World) -> None:
    """ModelMesh asks only while it starts: it has restarted."""
    await lifecycle.status()
    await lifecycle.load(A)

    assert (await lifecycle.status()).is_ready
    assert world.is_empty


async def test_a_purge_that_fails_leaves_nothing_of_an_earlier_ready(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The READY of the first purge was never heard; the second purge has met a wrong Triton."""
    world.hold("purge")
    await lifecycle.status()
    world.let_go("purge")
    await lifecycle.load(A)
    world.fail("verify", WrongServer("Triton is not in explicit mode"), times=2)
    assert not (await lifecycle.status()).is_ready
    await lifecycle.unload("a")

    assert not (await lifecycle.status()).is_ready


async def test_a_load_that_succeeds_while_a_purge_begins_does_not_hide_it(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("measure")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("measure")
    world.hold("verify")
    await lifecycle.status()
    world.let_go("measure")
    await load

    assert (lifecycle.readiness() or "").startswith("purging")
    world.let_go("verify")
    assert (await lifecycle.status()).is_ready


async def test_a_load_during_a_purge_waits_for_it(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("purge")
    await lifecycle.status()
    load = asyncio.create_task(lifecycle.load(A))
    await asyncio.sleep(1)
    assert "open a" not in world.trace
    world.let_go("purge")

    assert (await load).size_bytes == 1_250_000


async def test_a_wrong_triton_stays_starting_and_is_named(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Never FAILING: ModelMesh would give up for good."""
    world.fail("verify", WrongServer("Triton is not in explicit mode"), times=2)

    first, second, third = [await lifecycle.status() for _ in range(3)]

    assert (first.is_ready, first.problem) == (False, "Triton is not in explicit mode")
    assert (second.is_ready, third.is_ready) == (False, True)


async def test_a_triton_that_is_away_is_waited_for(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("verify")
    world.problem = "Triton does not answer"
    assert (await lifecycle.status()).problem == "Triton does not answer"
    world.problem = None
    world.let_go("verify")

    assert (await lifecycle.status()).is_ready


async def test_the_size_of_a_model_that_is_not_loaded_is_not_found(lifecycle: RuntimeLifecycle) -> None:
    with pytest.raises(ModelNotLoaded):
        await lifecycle.size_of("nobody")


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


async def test_a_drain_that_cannot_settle_says_so(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.hold("unload")
    unload = asyncio.create_task(lifecycle.unload("a"))
    await world.until_held("unload")

    assert not await lifecycle.drain(25)
    world.let_go("unload")
    await unload


async def test_a_load_over_an_unknown_view_asks_triton_first(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """The index could not be read at start: a model that is not in our table may be loaded all the same."""
    world.fail("index", WrongServer("restricted"))
    world.placed["a"] = Layout({})
    world.memory["a"] = "READY"
    lifecycle = make()
    lifecycle.start()

    await lifecycle.load(A)

    assert world.trace.index("unload a") < world.trace.index("place a")


async def test_a_purge_that_overtakes_an_adoption_keeps_its_gate(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """The adoption may end in the very moment in which the purge begins."""
    lifecycle = make()
    lifecycle.start()
    world.hold("verify")
    status = asyncio.create_task(lifecycle.status())
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("verify")
    await asyncio.sleep(1)

    assert "open a" not in world.trace
    world.let_go("verify")
    await status
    assert (await load).size_bytes == 1_250_000


async def test_a_call_that_passes_the_gate_may_shut_it_for_those_behind(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """All who wait are woken at once; the first of them begins a purge."""
    lifecycle = make()
    reconciler = lifecycle._reconciler
    world.hold("purge")
    passed = []

    async def pass_and_purge() -> None:
        await reconciler.passed()
        await reconciler.status()

    async def follow() -> None:
        await reconciler.passed()
        passed.append(asyncio.get_running_loop().time())

    tasks = [asyncio.create_task(pass_and_purge()), asyncio.create_task(follow())]
    await asyncio.sleep(0)
    lifecycle.start()
    await asyncio.sleep(10)
    assert passed == []
    world.let_go("purge")
    assert (await reconciler.status()).is_ready
    await asyncio.gather(*tasks)

    assert passed == [10.0]


async def test_a_modelmesh_that_does_not_ask_again_holds_loads_up_for_ten_seconds(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("purge")
    assert not (await lifecycle.status()).is_ready
    began = asyncio.get_running_loop().time()
    load = asyncio.create_task(lifecycle.load(A))
    world.let_go("purge")
    await load

    assert READY_SECONDS <= asyncio.get_running_loop().time() - began < READY_SECONDS + 2


async def test_a_reserved_name_in_the_index_is_no_model(world: World, capacity: CapacitySettings) -> None:
    """Folders of the adapter's own that lie where Triton looks: neither served nor unloaded."""
    world.placed["_ours"] = Layout({})
    lifecycle = RuntimeLifecycle(ports=ports(world), capacity=capacity, unload_timeout_seconds=170, reserved_ids=RESERVED_IDS | {"_ours"})
    lifecycle.start()
    await asyncio.sleep(3)

    assert "unload _ours" not in world.trace
    assert len(lifecycle.registry) == 0
    await lifecycle.close()


async def test_a_take_over_says_what_it_is_waiting_for(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """And when Triton had nothing, that ModelMesh has not come yet."""
    world.hold("index")
    lifecycle = make()
    assert lifecycle.readiness() == NOT_ASKED
    lifecycle.start()
    assert lifecycle.readiness() == TAKING_OVER
    await world.until_held("index")
    world.let_go("index")
    await asyncio.sleep(1)

    assert lifecycle.readiness() == NOT_ASKED


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


async def test_a_call_waits_for_a_take_over_that_is_made_again(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    world.placed["a"], world.memory["a"] = Layout({}), "READY"
    world.fail("index", WrongServer("restricted"))
    lifecycle = make()
    lifecycle.start()
    await until_told(lifecycle, "restricted")
    world.hold("index")
    await world.until_held("index")
    unload = asyncio.create_task(lifecycle.unload("a"))
    await asyncio.sleep(10)
    assert "unload a" not in world.trace
    world.let_go("index")
    await unload

    assert world.is_empty
    assert len(lifecycle.registry) == 0


async def until_told(lifecycle: RuntimeLifecycle, words: str) -> None:
    async with asyncio.timeout(60):
        while words not in (lifecycle.readiness() or ""):
            await asyncio.sleep(0.1)


async def test_what_is_under_way_when_the_process_ends_is_no_defect(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The loop cancels all its tasks at last: no error with a traceback for each of them."""
    await lifecycle.load(A)
    world.hold("fetch")
    world.hold("unload")
    calls = [
        asyncio.create_task(lifecycle.load(a_spec("models/a", model_id="b", model_type="onnx"))),
        asyncio.create_task(lifecycle.unload("a")),
    ]
    await world.until_held("fetch")
    await world.until_held("unload")

    with capture_logs() as lines:
        await lifecycle.close()
        for task in asyncio.all_tasks() - {asyncio.current_task(), *calls}:
            task.cancel()
        told = await asyncio.gather(*calls, return_exceptions=True)

    assert [type(error) for error in told] == [Draining, Draining]
    assert "operation.crashed" not in [line["event"] for line in lines]


async def test_after_a_purge_that_failed_half_way_all_models_go_nevertheless(lifecycle: RuntimeLifecycle, world: World) -> None:
    """What Triton holds is not known: each is taken down, also before its next load."""
    await lifecycle.status()
    await lifecycle.load(A)
    await lifecycle.load(B)

    async def half(point: str, _model_id: str) -> None:
        if point == "purge":
            del world.placed["a"], world.memory["a"]
            raise ServerError("not unloaded")

    world.chaos = half
    state = await lifecycle.status()
    world.chaos = None

    assert not state.is_ready
    with pytest.raises(ModelNotLoaded):
        await lifecycle.size_of("a")
    await lifecycle.load(A)
    await asyncio.sleep(5)
    assert world.trace.count("unload a") == 1
    assert world.memory == {"a": "READY"}


async def test_a_load_under_way_is_superseded_by_a_purge(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.hold("load")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("load")
    assert not (await lifecycle.status()).is_ready
    world.let_go("load")

    with pytest.raises(Superseded):
        await load
    await asyncio.sleep(3)
    assert (await lifecycle.status()).is_ready
    assert world.is_empty
