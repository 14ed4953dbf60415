"""Triton comes back empty: what was loaded is loaded again from the files that are placed, and nothing is pulled."""

import asyncio
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from adapter.errors import ModelRefused, WrongServer
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.states import State
from adapter.model import ModelSpec
from adapter.telemetry.metrics import RESTORE_PENDING, RESTORES
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


def pending() -> float:
    return next(iter(RESTORE_PENDING.collect())).samples[0].value


def state_of(lifecycle: RuntimeLifecycle, model_id: str) -> State:
    model = lifecycle.registry.find(model_id)
    return model.state if model else State.ABSENT


async def test_the_last_one_confirmed_comes_first_and_two_at_once(lifecycle: RuntimeLifecycle, world: World) -> None:
    specs = await loaded(lifecycle, world, 5)
    await lifecycle.load(specs[1])

    world.restart_triton()
    await asyncio.sleep(0.5)
    assert len(world.loading) == 2
    await asyncio.sleep(6)

    assert sent(world) == ["m1", "m4", "m3", "m2", "m0"]


async def test_a_restore_changes_neither_the_size_nor_the_order_of_the_next_one(lifecycle: RuntimeLifecycle, world: World) -> None:
    await loaded(lifecycle, world, 3)
    size = await lifecycle.size_of("m0")
    world.reported = 77
    for _ in range(2):
        world.trace.clear()
        world.restart_triton()
        await asyncio.sleep(6)

    assert sent(world) == ["m2", "m1", "m0"]
    assert await lifecycle.size_of("m0") == size


async def test_readyz_is_told_how_far_it_is(lifecycle: RuntimeLifecycle, world: World) -> None:
    await loaded(lifecycle, world, 10)
    assert lifecycle.notice() is None

    world.restart_triton()
    notices = []
    for _ in range(60):
        await asyncio.sleep(0.1)
        notices.append(lifecycle.notice())

    assert list(dict.fromkeys(notices)) == [*(f"restoring {count} of 10" for count in (0, 2, 4, 6, 8)), None]
    assert lifecycle.readiness() is None


async def test_what_a_take_over_has_found_lost_is_counted_from_the_beginning(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Both containers have died: the models of the journal are LOST before the gate opens."""
    await asyncio.sleep(1)
    for number in range(4):
        await lifecycle.load(a_spec("models/a", model_id=f"m{number}", model_type="onnx"))
    world.memory.clear()
    for model in lifecycle.registry:
        lifecycle.registry.move(model, State.LOST)
    lifecycle._background.begin()
    notices = []
    for _ in range(30):
        notices.append(lifecycle.notice())
        await asyncio.sleep(0.1)

    assert list(dict.fromkeys(notices)) == ["restoring 0 of 4", "restoring 2 of 4", None]


async def test_those_that_wait_are_counted(lifecycle: RuntimeLifecycle, world: World) -> None:
    await loaded(lifecycle, world, 5)
    world.restart_triton()
    await asyncio.sleep(0.5)
    assert pending() == 5
    await asyncio.sleep(6)
    assert pending() == 0


async def test_a_triton_that_hangs_and_goes_on_has_lost_nothing(lifecycle: RuntimeLifecycle, world: World, outcomes: Outcomes) -> None:
    await loaded(lifecycle, world, 3)

    world.hang_triton()
    await asyncio.sleep(20)
    world.start_triton(is_another=False)
    await asyncio.sleep(6)

    assert sent(world) == []
    assert outcomes.new == {}
    assert {state_of(lifecycle, f"m{number}") for number in range(3)} == {State.LOADED}


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


async def test_a_triton_that_is_away_for_long_is_waited_for(lifecycle: RuntimeLifecycle, world: World) -> None:
    await loaded(lifecycle, world, 2)

    world.kill_triton()
    await asyncio.sleep(500)
    world.start_triton()
    await asyncio.sleep(6)

    assert world.memory == {"m0": "READY", "m1": "READY"}


# ---- loads


async def test_a_call_whose_placed_files_are_refused_pulls_them(lifecycle: RuntimeLifecycle, world: World) -> None:
    specs = await loaded(lifecycle, world, 3)
    world.restart_triton()
    await until(lambda: len(world.loading) == 2)
    load = asyncio.create_task(lifecycle.load(specs[0]))
    await asyncio.sleep(0.5)
    world.fail("load", ModelRefused("the files are damaged"))

    assert (await load).size_bytes == 1_250_000
    assert world.trace.count("fetch") == 1
    assert len(world.artifacts) == 3


async def test_a_call_that_goes_before_it_has_sent_anything_leaves_the_model_to_be_restored(
    lifecycle: RuntimeLifecycle, world: World
) -> None:
    specs = await loaded(lifecycle, world, 3)
    world.restart_triton()
    await until(lambda: len(world.loading) == 2)
    world.hold("open")
    load = asyncio.create_task(lifecycle.load(specs[0]))
    await world.until_held("open")
    load.cancel()
    await asyncio.sleep(6)

    assert len(world.memory) == 3
    assert sent(world).count("m0") == 1


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


async def test_an_equal_load_does_not_send_another_directory(lifecycle: RuntimeLifecycle, world: World) -> None:
    specs = await loaded(lifecycle, world, 1)
    world.hold("index")
    world.restart_triton()
    await world.until_held("index")
    world.identities["m0"] = "another"
    load = asyncio.create_task(lifecycle.load(specs[0]))
    await until(lambda: "ready m0" in world.trace)
    world.let_go("index")
    await load

    assert world.trace.count("fetch") == 1


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


async def test_a_call_does_not_wait_in_the_place_of_its_own_restore(lifecycle: RuntimeLifecycle, world: World) -> None:
    specs = await queued(lifecycle, world)
    await lifecycle.load(specs[2])

    assert sent(world)[4] == "m2"
    assert pulled(world).count("fetch") == 2
    await asyncio.sleep(6)
    assert len(world.memory) == 8
    assert world.violations == []


async def test_a_drain_leaves_a_restore_that_waits_lost(lifecycle: RuntimeLifecycle, world: World) -> None:
    await queued(lifecycle, world)
    await lifecycle.drain(25)

    assert [world.records[f"m{number}"].state for number in range(6)] == ["lost"] * 4 + ["loaded"] * 2
    assert len(world.placed) == 8


async def test_an_unload_frees_a_model_whose_restore_waits(lifecycle: RuntimeLifecycle, world: World) -> None:
    await queued(lifecycle, world)
    await lifecycle.unload("m3")

    assert not world.holds("m3")
    await asyncio.sleep(6)
    assert "m3" not in sent(world)


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


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.5, 0.9, 1.0, 1.1])
async def test_an_unload_ends_a_restore_and_nothing_is_left(lifecycle: RuntimeLifecycle, world: World, seconds: float) -> None:
    """Waiting, in Triton, just back: when the unload is answered nothing is held, and nothing comes back."""
    await loaded(lifecycle, world, 3)
    world.restart_triton()
    await asyncio.sleep(seconds)
    await asyncio.gather(*(lifecycle.unload(f"m{number}") for number in range(3)))
    assert world.is_empty
    await asyncio.sleep(6)

    assert world.is_empty
    assert len(lifecycle.registry) == 0


@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.5, 1.0, 2.5])
async def test_a_purge_ends_a_restore(lifecycle: RuntimeLifecycle, world: World, seconds: float) -> None:
    await loaded(lifecycle, world, 6)
    world.restart_triton()
    await asyncio.sleep(seconds)
    async with asyncio.timeout(30):
        while not (await lifecycle.status()).is_ready:
            await asyncio.sleep(0.1)
    assert world.is_empty
    await asyncio.sleep(6)

    assert world.is_empty
    assert lifecycle.notice() is None


async def test_what_is_lost_after_a_purge_is_restored(lifecycle: RuntimeLifecycle, world: World) -> None:
    while not (await lifecycle.status()).is_ready:
        pass
    await loaded(lifecycle, world, 2)
    world.restart_triton()
    await asyncio.sleep(6)

    assert len(world.memory) == 2


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


async def test_lost_models_are_unloaded_while_draining(lifecycle: RuntimeLifecycle, world: World) -> None:
    await loaded(lifecycle, world, 6)
    world.restart_triton()
    await until(lambda: len(world.loading) == 2)
    drain = asyncio.create_task(lifecycle.drain(25))
    await asyncio.sleep(0.1)
    for number in range(6):
        await lifecycle.unload(f"m{number}")
    assert await drain

    assert world.is_empty


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


async def test_a_triton_over_another_repository_is_told_of_and_gets_nothing(
    lifecycle: RuntimeLifecycle, world: World, outcomes: Outcomes
) -> None:
    """Once it is the right one again, everything comes back."""
    await loaded(lifecycle, world, 3)
    world.fail("verify", WrongServer("Triton's --model-repository is not /models"), times=1000)
    with capture_logs() as logs:
        world.restart_triton()
        await asyncio.sleep(3600)
    assert sent(world) == []
    assert outcomes.new == {}
    assert [log["cause"] for log in logs if log["event"] == "reconciler.failed"] == ["Triton's --model-repository is not /models"]

    world.heal("verify")
    world.restart_triton()
    await asyncio.sleep(3)

    assert outcomes.new == {"restored": 3}, "without the rest of a pause"


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.5, 2.5, 4.5])
async def test_what_modelmesh_does_when_it_learns_of_a_loss_ends_loaded_whatever_the_restore_has_done(
    lifecycle: RuntimeLifecycle, world: World, seconds: float
) -> None:
    """
    NOT_FOUND at an inference, `unloadModel`, and `loadModel` within 0.2 s. Source: observed on ModelMesh.

    All moments: the restores of all models wait, are sent, or have ended.
    """
    specs = await loaded(lifecycle, world, 6)
    fetched: list[str] = []
    world.on_fetch = fetched.append
    world.restart_triton()
    await asyncio.sleep(seconds)

    async def reloaded(spec: ModelSpec) -> None:
        unload = asyncio.create_task(lifecycle.unload(spec.model_id))
        await asyncio.sleep(0.2)
        await lifecycle.load(spec)
        await unload

    await asyncio.gather(*(reloaded(spec) for spec in specs[::2]))
    await asyncio.sleep(20)

    assert world.memory == dict.fromkeys((spec.model_id for spec in specs), "READY")
    assert {state_of(lifecycle, spec.model_id) for spec in specs} == {State.LOADED}
    assert set(fetched) <= {"m0", "m2", "m4"}
    assert lifecycle.notice() is None


@pytest.mark.parametrize("seconds", [0.0, 0.5, 1.5, 2.5])
async def test_two_purges_in_the_middle_of_a_restore_leave_nothing(
    lifecycle: RuntimeLifecycle, world: World, outcomes: Outcomes, seconds: float
) -> None:
    await loaded(lifecycle, world, 6)
    world.restart_triton()
    await asyncio.sleep(seconds)

    for _ in range(2):
        async with asyncio.timeout(60):
            while not (await lifecycle.status()).is_ready:
                pass
    await asyncio.sleep(20)

    assert world.is_empty
    assert not world.records
    assert sum(outcomes.new.values()) in ((6,) if seconds else (0, 6)), "each lost model came to one end"
    assert pending() == 0
