"""Thousands of models are lost at once: the work for each does not grow with their number, and the loop is nobody's for long."""

import asyncio
from collections.abc import Iterator

import pytest

from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.operation import Model
from adapter.lifecycle.registry import Registry
from adapter.model import ModelSpec
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
COUNT = 300


async def loaded(lifecycle: RuntimeLifecycle, world: World) -> list[ModelSpec]:
    world.load_seconds = world.unload_seconds = 0.1
    specs = []
    for number in range(COUNT):
        world.add(f"models/{number}", etag=f"e{number}")
        specs.append(a_spec(f"models/{number}", model_id=f"m{number}", model_type="onnx"))
    await asyncio.gather(*map(lifecycle.load, specs))
    world.trace.clear()
    return specs


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each walk over all models."""
    found: list[int] = []
    walk = Registry.__iter__

    def counted(registry: Registry) -> Iterator[Model]:
        found.append(len(registry))
        return walk(registry)

    monkeypatch.setattr(Registry, "__iter__", counted)
    return found


async def test_a_restore_does_not_walk_all_models_for_each(lifecycle: RuntimeLifecycle, world: World, walks: list[int]) -> None:
    specs = await loaded(lifecycle, world)
    walks.clear()
    world.restart_triton()
    await asyncio.sleep(60)

    assert set(world.memory.values()) == {"READY"}
    assert len(world.memory) == len(specs)
    assert len(walks) < 10
    assert lifecycle.notice() is None


async def test_loads_that_come_before_the_loss_is_known_load_each_model_once(lifecycle: RuntimeLifecycle, world: World) -> None:
    specs = await loaded(lifecycle, world)
    world.restart_triton()
    await asyncio.gather(*map(lifecycle.load, specs))
    await asyncio.sleep(10)

    assert sorted(step for step in world.trace if step.startswith("load ")) == sorted(f"load m{number}" for number in range(COUNT))
    assert not [step for step in world.trace if step.startswith("fetch")]


async def test_others_have_their_turn_while_a_loss_is_entered(lifecycle: RuntimeLifecycle, world: World) -> None:
    specs = await loaded(lifecycle, world)
    world.hold("slot")
    world.restart_triton()
    seen = set[str | None]()
    while lifecycle.notice() != f"restoring 0 of {len(specs)}":
        await asyncio.sleep(0)
        seen.add(lifecycle.notice())

    world.let_go("slot")
    await asyncio.sleep(60)
    assert len(world.memory) == len(specs)
    assert len(seen) > 2, "the loop was held while all of them became LOST"


async def test_what_is_given_up_is_taken_down_a_few_at_a_time(lifecycle: RuntimeLifecycle, world: World) -> None:
    specs = await loaded(lifecycle, world)
    world.deadly = {f"e{number}" for number in range(COUNT)}
    most = 0

    async def watched(point: str, model_id: str) -> None:
        nonlocal most
        most = max(most, sum(operation.kind == "unload" for operation in lifecycle.registry.operations()))

    world.chaos = watched
    world.restart_triton()
    await asyncio.sleep(120)

    assert len(specs) == COUNT
    assert world.is_empty
    assert 0 < most < 100
    assert len(lifecycle.registry) == 0
    assert "given up" in str(lifecycle.notice())


async def test_a_call_that_comes_while_a_loss_is_entered_and_goes_again_leaves_its_model_to_be_restored(
    lifecycle: RuntimeLifecycle, world: World
) -> None:
    specs = await loaded(lifecycle, world)
    world.hold("open")
    world.restart_triton()
    while lifecycle.notice() is None:
        await asyncio.sleep(0)
    calls = [asyncio.create_task(lifecycle.load(spec)) for spec in specs]
    await asyncio.sleep(1)
    assert lifecycle.registry.operations()
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)
    world.let_go("open")
    await asyncio.sleep(60)

    assert len(world.memory) == len(specs)
