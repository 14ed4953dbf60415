"""What an earlier process has noted is true for the next one, where Triton and the folder agree."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from adapter.errors import WrongServer
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import ModelSpec
from adapter.records import Record
from tests.builders import a_spec
from tests.fakes.world import Process, World

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="a", model_type="onnx", storage_key="minio")
HINT_BYTES = 77_000_000


async def restarted(lifecycle: RuntimeLifecycle, make: Callable[[], RuntimeLifecycle]) -> RuntimeLifecycle:
    """The next process over the same world, after its take-over."""
    await lifecycle.close()
    later = make()
    later.start()
    await asyncio.sleep(0.1)
    return later


async def test_people_read_of_an_adopted_model_what_its_loader_wrote(
    lifecycle: RuntimeLifecycle, world: World, make: Callable[[], RuntimeLifecycle]
) -> None:
    await lifecycle.load(A)
    before = world.records["a"]
    await asyncio.sleep(100)
    await restarted(await restarted(lifecycle, make), make)

    assert world.records["a"] == before
    assert (before.model_type, before.path, before.storage_key) == ("onnx", "models/a", "minio")


async def test_a_triton_that_tells_no_size_does_not_hinder_an_adoption(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """Then its files tell the size."""
    world.fail("measure", WrongServer("restricted"))
    later = await died_in_load(A, world, make)

    assert await later.size_of("a") == 1_250_000


async def test_a_given_size_outlives_the_adapter(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    given = a_spec("models/a", model_id="a", model_type="onnx", size_hint_bytes=HINT_BYTES)
    world.reported = 33_000_000
    later = await died_in_load(given, world, make)

    assert await later.size_of("a") == HINT_BYTES


async def test_what_is_half_done_counts_for_its_memory_after_each_restart(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """Triton goes on with the load, so the memory that it may take is not free."""
    lifecycle = make()
    lifecycle.start()
    world.hold("load")
    load = asyncio.create_task(lifecycle.load(a_spec("models/a", model_id="a", model_type="onnx", size_hint_bytes=HINT_BYTES)))
    await world.until_held("load")
    for _ in range(2):
        process(lifecycle).is_alive = False
        lifecycle = await restarted(lifecycle, make)
        await asyncio.gather(load, return_exceptions=True)

        model = lifecycle.registry.find("a")
        assert model is not None
        assert (model.is_going, model.size_bytes) == (True, HINT_BYTES)
    world.let_go("load")


async def died_in_load(spec: ModelSpec, world: World, make: Callable[[], RuntimeLifecycle]) -> RuntimeLifecycle:
    """The first process dies while Triton loads; the next one comes when Triton has ended that."""
    first = make()
    first.start()
    world.hold("load")
    load = asyncio.create_task(first.load(spec))
    await world.until_held("load")
    kept = dict(world.records)
    world.let_go("load")
    process(first).is_alive = False
    await asyncio.gather(load, return_exceptions=True)
    assert kept["a"].state == "loading"
    assert world.records == kept
    return await restarted(first, make)


def process(lifecycle: RuntimeLifecycle) -> Process:
    """The life that it belongs to."""
    return lifecycle._ports.server.process  # type: ignore[attr-defined, no-any-return] # the fake's


async def test_a_load_that_triton_died_over_is_counted_and_undone(
    lifecycle: RuntimeLifecycle, world: World, make: Callable[[], RuntimeLifecycle]
) -> None:
    """Both containers have died: the model that was loading may be what killed Triton."""
    world.add("models/b")
    await lifecycle.load(A)
    world.hold("load")
    load = asyncio.create_task(lifecycle.load(a_spec("models/b", model_id="b", model_type="onnx")))
    await world.until_held("load")
    content = lifecycle.registry.find("b").content  # type: ignore[union-attr] # it is there
    process(lifecycle).is_alive = False
    world.restart_triton()
    world.let_go("load")
    await asyncio.gather(load, return_exceptions=True)
    later = await restarted(lifecycle, make)
    await asyncio.sleep(3)

    assert {digest: crashes.count for digest, crashes in world.crashes.items()} == {content.crash: 1}
    assert later.registry.find("b") is None
    assert "b" not in world.placed


@pytest.mark.parametrize("model_id", ["gone", "_triton_models", "a~inner~b"])
async def test_records_of_models_that_nobody_has_are_forgotten(model_id: str, world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """Or that cannot be: an earlier process had other folders, or somebody else has written the file."""
    world.records[model_id] = Record(model_id=model_id, state="loaded", since=1.0, placed="gone-1")
    later = make()
    later.start()
    await asyncio.sleep(0.1)

    assert world.records == {}
    assert len(later.registry) == 0


async def test_an_artifact_that_is_gone_does_not_hinder_an_adoption(
    lifecycle: RuntimeLifecycle, world: World, make: Callable[[], RuntimeLifecycle]
) -> None:
    """What Triton serves has hard links of its own."""
    answer = await lifecycle.load(A)
    world.artifacts.clear()
    later = await restarted(lifecycle, make)

    assert await later.load(A) == answer
    await later.unload("a")
    assert world.is_empty


async def test_an_artifact_of_the_record_is_the_one_that_is_reclaimed(
    lifecycle: RuntimeLifecycle, world: World, make: Callable[[], RuntimeLifecycle]
) -> None:
    await lifecycle.load(A)
    other = Path("/artifacts/other/1")
    world.artifacts.add(other)
    later = await restarted(lifecycle, make)

    await later.unload("a")

    assert world.artifacts == {other}


async def test_a_purge_that_overtakes_a_take_over_forgets_all_records(
    lifecycle: RuntimeLifecycle, world: World, make: Callable[[], RuntimeLifecycle]
) -> None:
    await lifecycle.load(A)
    await lifecycle.close()
    world.hold("inventory")
    later = make()
    later.start()
    await world.until_held("inventory")

    assert (await later.status()).is_ready
    assert world.records == {}
