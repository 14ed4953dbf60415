"""Triton comes back empty: what was loaded is loaded again from the files that are placed, and nothing is pulled."""

import asyncio
from collections.abc import Callable

import pytest

from adapter.errors import WrongServer
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.states import State
from adapter.model import ModelSpec
from adapter.telemetry.metrics import RESTORES
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")
OUTCOMES = ("restored", "refused", "crashed", "ended")


class Outcomes:
    """What has come of lost models since this was made."""

    def __init__(self) -> None:
        self._before = self._now()

    @property
    def new(self) -> dict[str, float]:
        return {name: count - self._before[name] for name, count in self._now().items() if count != self._before[name]}

    @staticmethod
    def _now() -> dict[str, float]:
        return {name: RESTORES.labels(name)._value.get() for name in OUTCOMES}


@pytest.fixture
def outcomes() -> Outcomes:
    return Outcomes()


async def loaded(lifecycle: RuntimeLifecycle, world: World, count: int) -> list[ModelSpec]:
    """So many models, one after the other: the last is the one that was loaded last."""
    specs = []
    for number in range(count):
        world.add(f"models/{number}", etag=f"e{number}")
        specs.append(a_spec(f"models/{number}", model_id=f"m{number}", model_type="onnx"))
        await lifecycle.load(specs[-1])
    world.trace.clear()
    return specs


def sent(world: World) -> list[str]:
    return [step.removeprefix("load ") for step in world.trace if step.startswith("load ")]


def pulled(world: World) -> list[str]:
    return [step for step in world.trace if step.startswith(("open", "fetch"))]


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


def state_of(lifecycle: RuntimeLifecycle, model_id: str) -> State:
    model = lifecycle.registry.find(model_id)
    return model.state if model else State.ABSENT


async def test_a_model_that_somebody_else_has_unloaded_is_not_lost(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Triton was asked for it since Triton started: that is drift, which nobody here knows the reason of."""
    await loaded(lifecycle, world, 2)
    await world.free("m0")

    world.hang_triton()
    world.start_triton(is_another=False)
    await asyncio.sleep(6)

    assert sent(world) == []


async def test_a_model_without_a_directory_becomes_absent(lifecycle: RuntimeLifecycle, world: World, outcomes: Outcomes) -> None:
    await loaded(lifecycle, world, 2)
    del world.placed["m0"]

    world.restart_triton()
    await asyncio.sleep(6)

    assert state_of(lifecycle, "m0") is State.ABSENT
    assert outcomes.new == {"refused": 1, "restored": 1}


async def test_a_triton_that_takes_no_loads_any_more_ends_the_restore(lifecycle: RuntimeLifecycle, world: World) -> None:
    """It is not tried again without an end."""
    await loaded(lifecycle, world, 1)
    world.fail("slot", WrongServer("polling is enabled"))

    world.restart_triton()
    await asyncio.sleep(6)

    assert state_of(lifecycle, "m0") is State.ABSENT


# ---- loads


async def test_a_model_that_became_loaded_after_the_question_is_not_lost(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The answer is older than the load."""
    await loaded(lifecycle, world, 1)
    world.hold("identities")
    world.restart_triton()
    await world.until_held("identities")
    await lifecycle.unload("m0")
    await lifecycle.load(A)
    world.let_go("identities")
    await asyncio.sleep(6)

    assert sent(world) == ["a"]
    assert world.memory == {"a": "READY"}


async def test_a_model_that_was_loaded_anew_after_the_question_is_not_lost(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The same model of the table, LOADED before and after, and in this Triton by now."""
    specs = await loaded(lifecycle, world, 1)
    world.hold("identities")
    world.restart_triton()
    await world.until_held("identities")
    world.add("models/0", etag="new")
    await lifecycle.load(specs[0])
    world.let_go("identities")
    await asyncio.sleep(6)

    assert sent(world) == ["m0"]
    assert world.violations == []
    assert world.memory == {"m0": "READY"}


async def test_an_equal_load_of_a_model_that_somebody_has_unloaded_frees_it_first(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Triton has not restarted: it may take a second load of the same files for done."""
    specs = await loaded(lifecycle, world, 1)
    await world.free("m0")

    await lifecycle.load(specs[0])

    assert [step for step in world.trace if step in ("unload m0", "fetch", "load m0")] == ["unload m0", "fetch", "load m0"]


async def queued(lifecycle: RuntimeLifecycle, world: World) -> list[ModelSpec]:
    """Two calls have both slots, and the restores of m3 and m2 wait behind them."""
    specs = await loaded(lifecycle, world, 6)
    world.restart_triton()
    await until(lambda: len(world.loading) == 2)
    for model_id in ("x", "y"):
        call = asyncio.create_task(lifecycle.load(a_spec("models/a", model_id=model_id, model_type="onnx")))
        CALLS.add(call)
        call.add_done_callback(CALLS.discard)
    await until(lambda: set(world.loading) == {"x", "y"})
    restores = [operation.model.model_id for operation in lifecycle.registry.operations() if operation.is_queued_restore]
    assert sorted(restores) == ["m2", "m3"]
    return specs


CALLS: set[asyncio.Task[object]] = set()
"""Held while they run."""


async def test_a_call_is_before_restores_that_wait_already(lifecycle: RuntimeLifecycle, world: World) -> None:
    await queued(lifecycle, world)
    await lifecycle.load(a_spec("models/a", model_id="z", model_type="onnx"))

    assert sent(world)[4] == "z"
    await asyncio.sleep(6)
    assert len(world.memory) == 9


async def test_a_drain_leaves_a_restore_that_waits_lost(lifecycle: RuntimeLifecycle, world: World) -> None:
    await queued(lifecycle, world)
    await lifecycle.drain(25)

    assert [world.records[f"m{number}"].state for number in range(6)] == ["lost"] * 4 + ["loaded"] * 2
    assert len(world.placed) == 8


async def test_a_model_confirmed_in_the_moment_of_the_death_is_looked_at_once_more(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The load of the call was answered by the Triton that died; the index was asked while the operation held the model."""
    specs = await loaded(lifecycle, world, 1)
    world.hold("written")
    load = asyncio.create_task(lifecycle.load(specs[0]))
    await world.until_held("written")
    world.restart_triton()
    await asyncio.sleep(5)
    world.let_go("written")
    await load
    await asyncio.sleep(6)

    assert world.memory == {"m0": "READY"}
    assert sent(world) == ["m0"]


# ---- unloads, purges, drains


async def test_a_drain_lets_triton_finish_and_begins_no_more(lifecycle: RuntimeLifecycle, world: World) -> None:
    """What waits stays LOST, so that the journal has it for the next process."""
    await loaded(lifecycle, world, 6)
    world.restart_triton()
    await until(lambda: len(world.loading) == 2)

    assert await lifecycle.drain(25)
    await asyncio.sleep(20)

    assert world.memory == {"m5": "READY", "m4": "READY"}
    assert [world.records[f"m{number}"].state for number in range(6)] == ["lost"] * 4 + ["loaded"] * 2
    assert len(world.placed) == 6


async def test_a_drain_does_not_wait_for_a_triton_that_is_away(lifecycle: RuntimeLifecycle, world: World) -> None:
    await loaded(lifecycle, world, 6)
    world.restart_triton()
    await until(lambda: len(world.loading) == 2)
    world.kill_triton()

    began = asyncio.get_running_loop().time()
    await lifecycle.drain(25)
    assert asyncio.get_running_loop().time() - began < 26


async def test_a_triton_that_comes_and_goes_all_day_is_asked_once(lifecycle: RuntimeLifecycle, world: World) -> None:
    """A connection that is broken again and again, while the index is not answered and a load is under way."""
    await loaded(lifecycle, world, 2)
    world.hold("load")
    world.add("models/a")
    load = asyncio.create_task(lifecycle.load(A))
    await world.until_held("load")
    tasks = len(asyncio.all_tasks())
    world.hold("index")
    world.trace.clear()
    for _ in range(500):
        world.hang_triton()
        world.start_triton(is_another=False)
        await asyncio.sleep(0.1)
    assert len(asyncio.all_tasks()) <= tasks + 5
    world.let_go("index")
    await asyncio.sleep(1)
    asked = world.trace.count("index")
    world.let_go("load")
    await load
    await asyncio.sleep(1)

    assert world.trace.count("index") <= asked + 2
    assert world.trace.count("identities") == 0


async def test_an_index_that_takes_longer_than_a_connection_lives_is_waited_for(
    lifecycle: RuntimeLifecycle, world: World, outcomes: Outcomes
) -> None:
    await loaded(lifecycle, world, 2)

    async def slow(point: str, _: str) -> None:
        if point == "index":
            await asyncio.sleep(1)

    world.chaos = slow
    world.restart_triton()
    for _ in range(40):
        await asyncio.sleep(0.3)
        world.hang_triton()
        world.start_triton(is_another=False)

    assert outcomes.new == {"restored": 2}
