"""A prediction has one deadline over everything, and says "cannot fit" only where that is known."""

import asyncio
from collections.abc import Callable

import pytest

from adapter.errors import AdapterError, InvalidModel, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.lifecycle.fetching import MOST_LOOKS, PREDICT_SECONDS
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import Listing, SourceFile, Survey
from adapter.settings.capacity import CapacitySettings
from tests.builders import a_spec
from tests.fakes.world import World

MIB = 1024 * 1024
A = a_spec("models/a", model_id="a", model_type="onnx")
DEFAULT = 1_000_000
CONFIG = SourceFile("config.pbtxt", 100, "config")


@pytest.fixture
def world() -> World:
    """A Triton that loads in no time: most tests here have threads, and so no virtual time."""
    world = World(load_seconds=0)
    world.add("models/a")
    return world


async def test_a_prediction_is_what_the_listing_says(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.add("models/a", size_bytes=40 * MIB)
    assert await lifecycle.predict(A) == 50 * MIB


async def test_where_the_config_was_not_read_all_files_count_and_nothing_is_sure(
    lifecycle: RuntimeLifecycle, world: World, capacity: CapacitySettings
) -> None:
    large = (SourceFile("1/model.onnx", 2000 * MIB, "e1"), CONFIG)
    world.surveys["models/a"] = Survey(2000 * MIB, Listing("memory://a", "a", False, large))
    assert await lifecycle.predict(A) == capacity.usable_bytes


async def test_files_that_could_not_be_served_predict_the_default(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The load is refused, with the reason: nothing shall be evicted for it."""
    world.objects["models/a"] = (SourceFile("a.txt", 300 * MIB, "e1"), SourceFile("b.txt", 300 * MIB, "e1"))
    assert await lifecycle.predict(A) == DEFAULT


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_a_measured_size_counts_for_the_same_listing_only(
    make: Callable[[], RuntimeLifecycle], world: World, *, is_restarted: bool
) -> None:
    """Also that which an earlier process has measured."""
    lifecycle = make()
    lifecycle.start()
    world.reported = 77_000_000
    await lifecycle.load(A)
    if is_restarted:
        lifecycle = make()
        lifecycle.start()
        await until_loaded(lifecycle, "a")
    assert await lifecycle.predict(A) == 77_000_000

    world.add("models/a", size_bytes=2_000_000, etag="e2")
    assert await lifecycle.predict(A) == 2_500_000


async def until_loaded(lifecycle: RuntimeLifecycle, model_id: str) -> None:
    async with asyncio.timeout(10):
        while lifecycle.registry.find(model_id) is None:
            await asyncio.sleep(0.001)


async def test_what_has_no_version_is_predicted_by_names_and_lengths(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Better than an estimate, and no proof."""
    world.add("models/a", etag="")
    world.reported = 77_000_000
    await lifecycle.load(A)
    assert await lifecycle.predict(A) == 77_000_000


@pytest.mark.parametrize("is_measured", [False, True])
async def test_a_store_that_is_away_is_stood_in_for(lifecycle: RuntimeLifecycle, world: World, *, is_measured: bool) -> None:
    """By what was measured, then by the file size that ModelMesh passed on, then by the default."""
    on_disk = a_spec("models/a", model_id="a", model_type="onnx", disk_size_bytes=8_000_000)
    if is_measured:
        world.reported = 77_000_000
        await lifecycle.load(A)
        await lifecycle.load(a_spec("models/a", model_id="b", model_type="onnx", disk_size_bytes=8_000_000))
    world.fail("survey", SourceUnavailable("away"), times=2)
    assert [await lifecycle.predict(spec) for spec in (A, on_disk)] == ([77_000_000] * 2 if is_measured else [DEFAULT, 10_000_000])


@pytest.mark.parametrize("error", [SourceNotFound("nothing there"), SourceDenied("no"), InvalidModel("configs too long")])
async def test_what_storage_refuses_predicts_the_default(lifecycle: RuntimeLifecycle, world: World, error: AdapterError) -> None:
    """Its load will fail: nothing shall be evicted for it, whatever was measured once."""
    world.reported = 77_000_000
    await lifecycle.load(A)
    world.fail("survey", error)
    assert await lifecycle.predict(A) == DEFAULT


@pytest.mark.parametrize("size", [900 * MIB, 4000 * MIB])
async def test_a_part_of_a_listing_never_says_that_a_model_cannot_fit(
    lifecycle: RuntimeLifecycle, world: World, capacity: CapacitySettings, size: int
) -> None:
    world.surveys["models/a"] = Survey(size, None)
    assert await lifecycle.predict(A) == capacity.usable_bytes


async def test_of_a_part_of_a_listing_all_that_was_seen_counts(lifecycle: RuntimeLifecycle, world: World) -> None:
    world.surveys["models/a"] = Survey(200 * MIB, None)
    assert await lifecycle.predict(A) == 250 * MIB


# ---- one deadline


@pytest.mark.looptime
async def test_a_look_that_cannot_be_cancelled_costs_no_more(lifecycle: RuntimeLifecycle, world: World) -> None:
    """As one that waits for a thread in a hung mount."""
    end = asyncio.Event()

    async def deaf(point: str, _model_id: str) -> None:
        while point == "survey" and not end.is_set():
            try:
                await end.wait()
            except asyncio.CancelledError:
                continue

    world.chaos = deaf
    begun = asyncio.get_running_loop().time()

    try:
        assert await asyncio.gather(*(lifecycle.predict(A) for _ in range(MOST_LOOKS + 50))) == [DEFAULT] * (MOST_LOOKS + 50)

        assert asyncio.get_running_loop().time() - begun == pytest.approx(PREDICT_SECONDS)
        assert sum(step == "survey a" for step in world.trace) == MOST_LOOKS, "what is left behind is bounded"
        assert await lifecycle.predict(A) == DEFAULT
        assert asyncio.get_running_loop().time() - begun == pytest.approx(PREDICT_SECONDS), "no place is free: answered at once"
    finally:
        end.set()
    await asyncio.sleep(1)
    assert await lifecycle.predict(A) == 1_250_000


# ---- a model that takes more than there is
