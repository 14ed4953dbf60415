"""What a load does, and what it answers."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from adapter.errors import (
    AdapterError,
    InvalidRequest,
    ModelRefused,
    SourceChanged,
    SourceUnavailable,
)
from adapter.lifecycle.fetching import LOOK_SECONDS
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.states import State
from adapter.model import RESERVED_IDS
from adapter.settings.capacity import CapacitySettings
from adapter.settings.kinds import AUTO
from tests.builders import a_spec
from tests.fakes.world import World, ports

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx")


async def test_a_loaded_model_is_answered_with_its_size(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Files × multiplier where Triton reports nothing."""
    loaded = await lifecycle.load(A)

    assert (loaded.size_bytes, loaded.max_concurrency) == (1_250_000, 4)
    assert world.memory == {"a": "READY"}
    assert await lifecycle.size_of("a") == 1_250_000


async def test_auto_is_a_limit_of_each_models_own(world: World, capacity: CapacitySettings) -> None:
    """Of a config that says nothing, a usual one; an equal load is told the same."""
    automatic = replace(capacity, max_concurrency=AUTO)
    lifecycle = RuntimeLifecycle(ports=ports(world), capacity=automatic, unload_timeout_seconds=170, reserved_ids=RESERVED_IDS)
    lifecycle.start()
    assert [(await lifecycle.load(A)).max_concurrency for _ in range(2)] == [16, 16]
    await lifecycle.close()


async def test_equal_loads_share_one_operation(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Eight equal loads at once: one listing, one pull, one load."""
    answers = await asyncio.gather(*(lifecycle.load(A) for _ in range(8)))

    assert len(set(answers)) == 1
    assert [step for step in world.trace if step.startswith(("open", "fetch", "load"))] == ["open a", "fetch", "load a"]


async def test_an_equal_load_of_a_loaded_model_only_looks(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load(A)
    world.trace.clear()

    await lifecycle.load(A)

    assert world.trace == ["open a", "ready a"]


async def test_content_without_a_version_is_never_equal(lifecycle: RuntimeLifecycle, world: World) -> None:
    """A web server without ETags and dates: the same length proves nothing, so the load brings what is there now."""
    world.add("models/a", etag="")
    await lifecycle.load(A)
    world.trace.clear()

    await lifecycle.load(A)

    assert [step for step in world.trace if step in ("unload a", "load a")] == ["unload a", "load a"]


@pytest.mark.parametrize("error", [SourceUnavailable("storage is away"), InvalidRequest("there is no storage config 's3'")])
async def test_a_ready_model_counts_as_equal_while_storage_cannot_be_asked(
    error: AdapterError, lifecycle: RuntimeLifecycle, world: World
) -> None:
    """A check that cannot be made is no reason to refuse: also where the key has left the secret."""
    await lifecycle.load(A)
    world.fail("open", error)

    assert (await lifecycle.load(A)).size_bytes == 1_250_000


async def test_a_ready_model_counts_as_equal_while_storage_hangs(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Storage takes the question and never answers: the look ends long before the budget does."""
    await lifecycle.load(A)
    world.hold("open")
    began = asyncio.get_running_loop().time()

    with capture_logs() as logs:
        assert (await lifecycle.load(A)).size_bytes == 1_250_000

    assert asyncio.get_running_loop().time() - began == pytest.approx(LOOK_SECONDS)
    assert {"event": "listing.skipped", "model_id": "a", "cause": "storage has not listed the model within 5 s"}.items() <= logs[0].items()
    assert world.memory == {"a": "READY"}


async def test_an_object_replaced_during_the_pull_starts_it_again(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.fail("fetch", SourceChanged("replaced"), times=2)

    await lifecycle.load(A)

    assert world.trace.count("open a") == 3


async def test_a_slow_undo_does_not_keep_the_answer(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The failure is told after two seconds; the undo goes on, and the next load waits for it."""
    world.fail("load", ModelRefused("bad model"))
    world.hold("unload")
    started = asyncio.get_running_loop().time()

    with pytest.raises(ModelRefused):
        await lifecycle.load(A)

    assert asyncio.get_running_loop().time() - started == pytest.approx(2.0)
    assert lifecycle.registry.find("a").state is State.UNLOADING
    again = asyncio.create_task(lifecycle.load(A))
    await asyncio.sleep(1)
    world.let_go("unload")
    assert (await again).size_bytes == 1_250_000


async def test_a_load_that_succeeds_proves_that_modelmesh_is_there(lifecycle: RuntimeLifecycle) -> None:
    """An adapter that restarts alone is not asked for its status; it must not stay unready for ever."""
    assert lifecycle.readiness() is not None
    await lifecycle.load(A)

    assert lifecycle.readiness() is None
