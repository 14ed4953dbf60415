"""What a front is told of models, at once; who is refused at once, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from adapter.errors import ModelRefused, ServerError, ServerUnavailable, Superseded
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.reconciler import NOT_ASKED
from adapter.model import ModelSpec, Named
from adapter.serving import AlreadyLoaded, KnownModel, Models
from tests.builders import a_spec
from tests.fakes.world import World
from tests.unit.lifecycle.fronts import a_front_model

pytestmark = pytest.mark.looptime
POINTS = ["open", "fetch", "place", "slot", "load", "measure"]
A = a_spec("models/a", model_id="sm-0a", named=Named("a b%?é", "/opt/ml/models/a/../a/model"))
NAME = "a b%?é"


def now() -> float:
    return asyncio.get_running_loop().time()


def told(model: KnownModel | None) -> str:
    """One word on it."""
    if model is None:
        return "none"
    words = [word for word, is_so in (("serving", model.is_serving), ("coming", model.is_coming), ("going", model.is_going)) if is_so]
    assert len(words) == 1
    return words[0]


async def test_a_model_is_known_by_the_name_and_url_that_its_caller_gave(lifecycle: RuntimeLifecycle, world: World) -> None:
    models: Models = lifecycle
    await models.load_new(A)

    found = models.find(NAME)
    url = "/opt/ml/models/a/../a/model"
    placed = world.identities[A.model_id]
    assert found == KnownModel(A.model_id, NAME, url, is_serving=True, is_coming_back=False, is_going=False, placed=placed)
    assert models.find(A.model_id) is None, "it has one name"
    assert models.known() == [found]


async def test_models_of_modelmesh_and_of_fronts_are_in_one_list(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Sorted by name; who has no other name has its id, and its url is where its files are placed."""
    for name in ("c", "b"):
        await lifecycle.load_new(a_front_model(world, name))
    await lifecycle.load(a_spec("models/a", model_id="bb"))

    assert [(model.name, model.url) for model in lifecycle.known()] == [
        ("b", "/opt/ml/models/b/model"),
        ("bb", "/models/repository/bb"),
        ("c", "/opt/ml/models/c/model"),
    ]
    assert told(lifecycle.find("bb")) == "serving"


async def test_each_state_is_told_as_soon_as_it_begins(lifecycle: RuntimeLifecycle, world: World) -> None:
    assert told(lifecycle.find(NAME)) == "none"
    world.hold("fetch")
    load = asyncio.create_task(lifecycle.load_new(A))
    await world.until_held("fetch")
    assert told(lifecycle.find(NAME)) == "coming"
    world.let_go("fetch")
    await load
    assert told(lifecycle.find(NAME)) == "serving"
    world.hold("unload")
    unload = asyncio.create_task(lifecycle.unload(A.model_id))
    await asyncio.sleep(0)
    assert told(lifecycle.find(NAME)) == "going", "before Triton has heard of it"
    await world.until_held("unload")
    assert told(lifecycle.find(NAME)) == "going"
    world.let_go("unload")
    await unload
    assert told(lifecycle.find(NAME)) == "none"
    assert lifecycle.known() == []


@pytest.mark.parametrize("point", POINTS)
async def test_an_unload_in_the_middle_of_a_load_is_told_at_once_and_leaves_nothing(
    lifecycle: RuntimeLifecycle, world: World, point: str
) -> None:
    world.hold(point)
    load = asyncio.create_task(lifecycle.load_new(A))
    await world.until_held(point)
    assert told(lifecycle.find(NAME)) == "coming"
    unload = asyncio.create_task(lifecycle.unload(A.model_id))
    await asyncio.sleep(0)
    assert told(lifecycle.find(NAME)) == "going"
    world.let_go(point)
    await unload
    with pytest.raises(Superseded):
        await load
    assert told(lifecycle.find(NAME)) == "none"
    assert world.is_empty


async def test_a_load_of_what_is_being_restored_is_refused_at_once(lifecycle: RuntimeLifecycle, world: World) -> None:
    """While it waits for its turn, and while Triton loads it again."""
    await lifecycle.load_new(A)
    world.hold("slot")
    world.restart_triton()
    await world.until_held("slot")
    assert told(lifecycle.find(NAME)) == "coming"
    began = now()
    with pytest.raises(AlreadyLoaded):
        await lifecycle.load_new(A)
    world.load_seconds = 30
    world.let_go("slot")
    await asyncio.sleep(1)
    assert world.memory == {A.model_id: "LOADING"}
    with pytest.raises(AlreadyLoaded):
        await lifecycle.load_new(A)
    assert now() - began < 2
    await asyncio.sleep(60)
    assert told(lifecycle.find(NAME)) == "serving"


async def test_one_namespace_with_modelmesh(lifecycle: RuntimeLifecycle) -> None:
    """A front cannot load over ModelMesh's model; a load of ModelMesh's takes the id, as it does for its own."""
    await lifecycle.load(a_spec("models/a", model_id="a"))
    with pytest.raises(AlreadyLoaded):
        await lifecycle.load_new(a_spec("models/a", model_id="a", named=Named("a", "/x")))
    await lifecycle.unload("a")
    await lifecycle.load_new(a_spec("models/a", model_id="a", named=Named("a", "/x")))
    await lifecycle.load(a_spec("models/a", model_id="a"))
    assert [(model.name, model.url) for model in lifecycle.known()] == [("a", "/models/repository/a")]


async def test_a_load_of_what_is_being_unloaded_waits_for_that_alone(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load_new(A)
    world.hold("unload")
    unload = asyncio.create_task(lifecycle.unload(A.model_id))
    await world.until_held("unload")
    loads = [asyncio.create_task(lifecycle.load_new(A)) for _ in range(3)]
    await asyncio.sleep(5)
    assert not any(load.done() for load in loads)
    world.let_go("unload")
    await unload

    answers = await asyncio.gather(*loads, return_exceptions=True)

    assert sum(isinstance(answer, AlreadyLoaded) for answer in answers) == 2
    assert told(lifecycle.find(NAME)) == "serving"


async def test_a_load_finishes_an_unload_that_has_failed(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load_new(A)
    world.fail("unload", ServerError("Triton does not take it"))
    with pytest.raises(ServerError):
        await lifecycle.unload(A.model_id)
    assert told(lifecycle.find(NAME)) == "going"
    world.trace.clear()

    await lifecycle.load_new(A)

    steps = [step for step in world.trace if step.split()[0] in ("unload", "remove", "place", "load")]
    assert [step.split()[0] for step in steps] == ["unload", "remove", "place", "load"]


@pytest.mark.parametrize("point", ["open", "place", "slot", "measure", "unload", "remove"])
async def test_nothing_waits_for_another_models_load_or_unload(lifecycle: RuntimeLifecycle, world: World, point: str) -> None:
    """One model hangs at this point, in its load or its unload: the others load, are told of, and unload meanwhile."""
    slow = a_front_model(world, "slow")
    is_over = asyncio.Event()

    async def chaos(at: str, model_id: str) -> None:
        if at == point and model_id == slow.model_id:
            await is_over.wait()

    if point in ("unload", "remove"):
        await lifecycle.load_new(slow)
    world.chaos = chaos
    hangs = asyncio.create_task(lifecycle.unload(slow.model_id) if point in ("unload", "remove") else lifecycle.load_new(slow))
    await asyncio.sleep(2)
    began = now()
    for number in range(3):
        other = a_front_model(world, f"m{number}")
        await lifecycle.load_new(other)
        assert told(lifecycle.find(f"m{number}")) == "serving"
        await lifecycle.unload(other.model_id)

    assert now() - began < 3 * (world.load_seconds + world.unload_seconds) + 1
    assert not hangs.done()
    is_over.set()
    await hangs


async def test_a_load_that_triton_refuses_is_told_when_its_memory_is_back(lifecycle: RuntimeLifecycle, world: World) -> None:
    """However long that takes; ModelMesh is told of its own after 2 s."""
    world.fail("load", ModelRefused("the backend says no"), times=2)
    world.hold("unload")
    loads = [asyncio.create_task(lifecycle.load_new(A)), asyncio.create_task(lifecycle.load(a_spec("models/a", model_id="m")))]
    await asyncio.sleep(30)
    assert [load.done() for load in loads] == [False, True]
    world.let_go("unload")
    for load in loads:
        with pytest.raises(ModelRefused):
            await load


async def test_a_load_is_refused_at_once_while_triton_is_away(lifecycle: RuntimeLifecycle, world: World) -> None:
    await lifecycle.load_new(A)
    await lifecycle.unload(A.model_id)
    world.kill_triton()
    began = now()
    with pytest.raises(ServerUnavailable):
        await lifecycle.load_new(A)
    assert now() - began < 0.1
    world.start_triton()
    await asyncio.sleep(5)
    await lifecycle.load_new(A)


# ---- restarts


async def test_names_outlive_adapter_and_triton(lifecycle: RuntimeLifecycle, world: World, make: Callable[[], RuntimeLifecycle]) -> None:
    await lifecycle.load_new(A)
    await lifecycle.close()
    world.restart_triton()
    later = make()
    world.hold("slot")
    later.start()
    await world.until_held("slot")
    assert told(later.find(NAME)) == "coming"
    world.let_go("slot")
    await asyncio.sleep(30)

    assert told(later.find(NAME)) == "serving"
    assert world.memory == {A.model_id: "READY"}


async def test_while_the_models_of_an_earlier_process_are_not_taken_over_nobody_says_that_there_are_none(
    lifecycle: RuntimeLifecycle, world: World, make: Callable[[], RuntimeLifecycle]
) -> None:
    await lifecycle.load_new(A)
    await lifecycle.close()
    world.hold("index")
    later = make()
    later.start()
    await world.until_held("index")

    for ask in (later.known, lambda: later.find(NAME), lambda: later.find("another")):
        with pytest.raises(ServerUnavailable):
            ask()
    assert later.obstacle is not None
    load = asyncio.create_task(later.load_new(A))
    await asyncio.sleep(1)
    assert not load.done()
    world.let_go("index")

    with pytest.raises(AlreadyLoaded):
        await load
    assert later.obstacle is None
    assert told(later.find(NAME)) == "serving"


async def test_a_first_process_has_no_models_at_once_though_triton_is_not_there(make: Callable[[], RuntimeLifecycle], world: World) -> None:
    world.kill_triton()
    first = make()
    first.start()
    await asyncio.sleep(1)
    assert first.known() == []
    assert first.find("a") is None
    assert first.obstacle == "Triton does not answer"


async def test_a_take_over_that_fails_lets_no_front_book_beside_what_nobody_knows(
    lifecycle: RuntimeLifecycle, world: World, make: Callable[[], RuntimeLifecycle]
) -> None:
    """It is made again by itself."""
    await lifecycle.load_new(A)
    await lifecycle.close()
    world.fail("index", ServerError("Triton's index is broken"))
    later = make()
    later.start()
    await asyncio.sleep(1)
    assert later.obstacle == "Triton's index is broken"
    with pytest.raises(ServerUnavailable, match="index is broken"):
        await later.load_new(a_front_model(world, "b"))
    with pytest.raises(ServerUnavailable, match="index is broken"):
        later.known()
    await asyncio.sleep(10)

    assert later.obstacle is None
    assert [model.name for model in later.known()] == [NAME]
    await later.load_new(a_front_model(world, "b"))


# ---- beside ModelMesh, and without it


async def test_without_modelmesh_nothing_stands_in_the_way_once_triton_answers(lifecycle: RuntimeLifecycle, world: World) -> None:
    """For ModelMesh the adapter is not ready meanwhile: nobody has asked for its status, and a front's load is no sign of ModelMesh."""
    await asyncio.sleep(0.1)
    assert lifecycle.obstacle is None
    await lifecycle.load_new(A)
    assert lifecycle.readiness() == NOT_ASKED
    world.kill_triton()
    assert lifecycle.obstacle == "Triton does not answer"
    world.start_triton()
    assert lifecycle.obstacle is None
    await asyncio.sleep(30)
    assert told(lifecycle.find(NAME)) == "serving"


async def test_an_equal_load_of_modelmeshs_does_not_join_a_fronts(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Each has its own answer: the front's load ends first."""
    world.hold("fetch")
    front = asyncio.create_task(lifecycle.load_new(A))
    await world.until_held("fetch")
    mesh = asyncio.create_task(lifecycle.load(ModelSpec(model_id=A.model_id, model_type="", path=A.path)))
    await asyncio.sleep(1)
    world.let_go("fetch")
    assert (await front).size_bytes == (await mesh).size_bytes
