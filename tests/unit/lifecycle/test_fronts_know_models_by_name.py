"""What a front is told of models, at once; who is refused at once, and who waits for whom."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from adapter.errors import ServerUnavailable
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.reconciler import NOT_ASKED
from adapter.model import Named
from adapter.serving import AlreadyLoaded, KnownModel
from tests.builders import a_spec
from tests.fakes.world import World
from tests.unit.lifecycle.fronts import a_front_model

pytestmark = pytest.mark.looptime
A = a_spec("models/a", model_id="sm-0a", named=Named("a b%?é", "/opt/ml/models/a/../a/model"))
NAME = "a b%?é"


def told(model: KnownModel | None) -> str:
    """One word on it."""
    if model is None:
        return "none"
    words = [word for word, is_so in (("serving", model.is_serving), ("coming", model.is_coming), ("going", model.is_going)) if is_so]
    assert len(words) == 1
    return words[0]


async def test_a_model_is_known_by_the_name_and_url_that_its_caller_gave(lifecycle: RuntimeLifecycle, world: World) -> None:
    models = lifecycle
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


async def test_one_namespace_with_modelmesh(lifecycle: RuntimeLifecycle) -> None:
    """A front cannot load over ModelMesh's model; a load of ModelMesh's takes the id, as it does for its own."""
    await lifecycle.load(a_spec("models/a", model_id="a"))
    with pytest.raises(AlreadyLoaded):
        await lifecycle.load_new(a_spec("models/a", model_id="a", named=Named("a", "/x")))
    await lifecycle.unload("a")
    await lifecycle.load_new(a_spec("models/a", model_id="a", named=Named("a", "/x")))
    await lifecycle.load(a_spec("models/a", model_id="a"))
    assert [(model.name, model.url) for model in lifecycle.known()] == [("a", "/models/repository/a")]


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


async def test_while_the_models_of_an_earlier_process_are_not_taken_over_no_front_says_that_there_are_none(
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


# ---- beside ModelMesh, and without it


async def test_without_modelmesh_nothing_stands_in_the_way_once_triton_answers(lifecycle: RuntimeLifecycle, world: World) -> None:
    """For ModelMesh the adapter is not ready meanwhile: its status was not asked for, and a front's load is no sign of ModelMesh."""
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
