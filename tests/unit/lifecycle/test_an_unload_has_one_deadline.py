"""An unload is answered within its bound, whatever it meets, and the error names what it met."""

import asyncio

import pytest

from adapter.errors import UnloadUnfinished
from adapter.lifecycle.lifecycle import RuntimeLifecycle
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


async def test_a_purge_that_never_ends_names_what_triton_holds(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.hold("purge")
    await lifecycle.status()

    assert await obstacle(lifecycle) == "purging: Triton has not freed 'a' yet"

    assert lifecycle.readiness() == "purging: Triton has not freed 'a' yet"


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
