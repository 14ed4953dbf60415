"""The memory of a front's models: never more than there is, whoever comes at once, fails, hangs or goes."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

import pytest

from adapter.errors import AdapterError, NoCapacity, ServerError, ServerUnavailable, SourceUnavailable
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.units import show_bytes
from tests.fakes.world import World
from tests.unit.lifecycle.fronts import CAPACITY_BYTES, FIT, MIB, SIZE_BYTES, a_front_model, fill

pytestmark = pytest.mark.looptime
POINTS = ["open", "fetch", "place", "slot", "load", "measure"]


class Watch:
    """At every step of a port: what Triton really holds."""

    def __init__(self, world: World, sizes: dict[str, int] | None = None) -> None:
        self.world = world
        self.sizes = sizes or {}
        self.most = 0

    async def __call__(self, _point: str, _model_id: str) -> None:
        self.most = max(self.most, sum(self.sizes.get(name, SIZE_BYTES) for name in self.world.memory))


async def test_loads_that_come_at_once_never_have_more_than_the_capacity(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Who finds no room is refused before anything is pulled, and leaves nothing."""
    watch = world.chaos = Watch(world)
    specs = [a_front_model(world, f"m{number}") for number in range(20)]

    answers = await asyncio.gather(*(lifecycle.load_new(spec) for spec in specs), return_exceptions=True)

    refused = [answer for answer in answers if isinstance(answer, NoCapacity)]
    assert (len(answers) - len(refused), len(refused)) == (FIT, 20 - FIT)
    assert watch.most == FIT * SIZE_BYTES <= CAPACITY_BYTES
    assert world.trace.count("fetch") == len(world.memory) == len(world.placed) == len(lifecycle.known()) == FIT
    assert refused[0].text == (
        f"model does not fit: {show_bytes(100 * MIB)} of files × 1.25 = {show_bytes(SIZE_BYTES)} beside {show_bytes(FIT * SIZE_BYTES)} "
        f"of {FIT} other models, but the capacity is {show_bytes(CAPACITY_BYTES)}"
    )


async def test_what_is_being_unloaded_counts_until_it_is_free(lifecycle: RuntimeLifecycle, world: World) -> None:
    first, *_ = await fill(lifecycle, world, FIT)
    world.hold("unload")
    unload = asyncio.create_task(lifecycle.unload(first.model_id))
    await world.until_held("unload")

    with pytest.raises(NoCapacity, match=r"of 8 other models, 1 of them not freed yet, but"):
        await lifecycle.load_new(a_front_model(world, "new"))
    world.let_go("unload")
    await unload

    await lifecycle.load_new(a_front_model(world, "new"))
    with pytest.raises(NoCapacity):
        await lifecycle.load_new(first)


async def test_a_model_that_is_larger_than_it_was_booked_is_looked_at_again_and_undone(lifecycle: RuntimeLifecycle, world: World) -> None:
    await fill(lifecycle, world, FIT - 2)
    world.reported = 400 * MIB
    large = a_front_model(world, "large")
    with pytest.raises(NoCapacity, match=r"does not fit and is unloaded again: it takes 400 MiB .* beside 750 MiB .* of 6 other models"):
        await lifecycle.load_new(large)
    assert large.model_id not in {**world.memory, **world.placed}
    world.trace.clear()

    with pytest.raises(NoCapacity, match=r"does not fit: it took 400 MiB .* when it was loaded last"):
        await lifecycle.load_new(large)
    assert "fetch" not in world.trace
    world.reported = 0

    for name in ("a", "b"):
        await lifecycle.load_new(a_front_model(world, name))
    with pytest.raises(NoCapacity):
        await lifecycle.load_new(a_front_model(world, "c"))


@pytest.mark.parametrize("seed", range(20))
async def test_whatever_happens_triton_never_has_more_than_the_capacity(lifecycle: RuntimeLifecycle, world: World, seed: int) -> None:
    """Loads, unloads, cancels and failures at random, of models of all sizes; at the end all memory can be had again."""
    dice = random.Random(seed)
    specs = [a_front_model(world, f"m{number}", mib=dice.choice([20, 100, 300, 700])) for number in range(12)]
    sizes = {spec.model_id: world.objects[spec.path][0].size_bytes * 5 // 4 for spec in specs}
    watch = Watch(world, sizes)

    async def chaos(point: str, model_id: str) -> None:
        await watch(point, model_id)
        await asyncio.sleep(dice.random())
        if point in POINTS and dice.random() < 0.05:
            raise ServerUnavailable("away") if point in ("slot", "load", "measure") else SourceUnavailable("away", can_pass=False)
        if point == "unload" and dice.random() < 0.1:
            raise ServerError("not now")
        await watch(point, model_id)

    async def one() -> None:
        for _ in range(15):
            spec = dice.choice(specs)
            with suppress(AdapterError, TimeoutError):
                async with asyncio.timeout(dice.choice([0.5, 3, 100])):
                    await (lifecycle.load_new(spec) if dice.random() < 0.7 else lifecycle.unload(spec.model_id))

    world.chaos = chaos
    await asyncio.gather(*(one() for _ in range(6)))
    world.chaos = None
    await asyncio.sleep(30)
    for spec in specs:
        await lifecycle.unload(spec.model_id)

    assert 0 < watch.most <= CAPACITY_BYTES
    assert world.is_empty
    assert not world.violations
    await fill(lifecycle, world, FIT)
