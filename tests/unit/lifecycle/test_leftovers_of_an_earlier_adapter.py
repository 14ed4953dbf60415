"""Thousands of models that an earlier adapter has left half done: taken down in the background, and nobody waits behind them."""

import asyncio
import time
from collections.abc import Callable

import pytest

from adapter.errors import ServerError
from adapter.lifecycle.leftovers import AT_ONCE
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import Layout
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime
COUNT = 5000


def half_done(world: World, count: int) -> None:
    """Directories that Triton was never asked to load."""
    for number in range(count):
        world.placed[f"m{number}"] = Layout({})


async def until(is_so: Callable[[], object]) -> None:
    async with asyncio.timeout(3600):
        while not is_so():
            await asyncio.sleep(0.1)


async def test_five_thousand_are_taken_down_a_few_at_a_time(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    half_done(world, COUNT)
    lifecycle = make()
    lifecycle.start()
    longest, before = 0.0, time.monotonic()
    while not lifecycle.registry.is_complete or len(lifecycle.registry):
        await asyncio.sleep(0)
        now = time.monotonic()
        longest, before = max(longest, now - before), now
        assert len(lifecycle.registry.operations()) <= AT_ONCE

    assert world.is_empty
    assert sum(step.startswith("unload ") for step in world.trace) == COUNT
    assert longest < 3, "the loop was held"


async def test_calls_go_first(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """Triton frees nothing of what is taken down: an unload of one that waits, of an unknown one, and a load are answered at once."""
    half_done(world, COUNT)
    hold = asyncio.Event()

    async def chaos(point: str, model_id: str) -> None:
        if point == "unload" and model_id not in ("m4999", "m4998", "nobody"):
            await hold.wait()

    world.chaos = chaos
    lifecycle = make()
    lifecycle.start()
    await until(lifecycle.registry.operations)

    async with asyncio.timeout(5):
        await lifecycle.unload("m4999")
        await lifecycle.unload("nobody")
        await lifecycle.load(a_spec("models/a", model_id="m4998", model_type="onnx"))

    assert "m4999" not in world.placed
    assert len(lifecycle.registry.operations()) == AT_ONCE
    hold.set()
    await until(lambda: len(lifecycle.registry) == 1)
    assert set(world.placed) == {"m4998"}


async def test_what_fails_is_tried_again(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """ModelMesh knows nothing of these models, so nobody else would."""
    half_done(world, 3)
    world.fail("unload", ServerError("not taken"), times=5)
    lifecycle = make()
    lifecycle.start()

    await until(lambda: lifecycle.registry.is_complete and not len(lifecycle.registry))

    assert world.is_empty
    assert world.trace.count("unload m0") == 3


async def test_a_purge_takes_over_what_waits(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    half_done(world, 200)
    world.hold("unload")
    lifecycle = make()
    lifecycle.start()
    await world.until_held("unload")
    await lifecycle.status()
    world.let_go("unload")

    while not (await lifecycle.status()).is_ready:
        await asyncio.sleep(2)
    await asyncio.sleep(600)

    assert world.is_empty
    assert len([step for step in world.trace if step.startswith("unload ")]) == AT_ONCE


async def test_a_drain_begins_no_more_of_them(world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    """The next process finds them as this one did."""
    half_done(world, 200)
    world.hold("unload")
    lifecycle = make()
    lifecycle.start()
    await world.until_held("unload")
    asyncio.get_running_loop().call_later(1, world.let_go, "unload")

    assert await lifecycle.drain(25)

    assert len(world.placed) == 200 - AT_ONCE
