"""Verify and purge, step by step."""

from __future__ import annotations

import asyncio
import random

import pytest

from adapter.errors import ServerError, WrongServer
from adapter.triton.client import CallError, TritonAway
from adapter.triton.unloads import PARALLEL
from tests.unit.triton.scripted import GONE, ScriptedTriton, cancel, serve, unnoticed

pytestmark = pytest.mark.looptime


def ready(triton: ScriptedTriton, *names: str) -> None:
    for name in names:
        triton.repository.directories.add(name)
        triton.states[name] = "READY"


async def test_verify_asks_for_the_mode_and_the_folder(triton: ScriptedTriton) -> None:
    """With a probe that is gone afterwards."""
    server = serve(triton)

    assert await server.verify() == "2.51.0"
    assert triton.trace == ["sweep", "unload probe", "remove probe", "metadata"]
    assert triton.repository.directories == set()


async def test_verify_waits_for_triton(triton: ScriptedTriton) -> None:
    """For ever, if need be."""
    triton.is_away = True
    verifying = asyncio.create_task(serve(triton).verify())
    await asyncio.sleep(3600)
    triton.is_away = False

    assert await verifying == "2.51.0"


async def test_the_wrong_mode_stays_the_problem_until_it_is_right(triton: ScriptedTriton) -> None:
    """Readiness shows it."""
    triton.script["unload"] = [WrongServer("--model-control-mode=explicit is missing")]
    server = serve(triton)

    with pytest.raises(WrongServer):
        await server.verify()

    assert server.problem == "--model-control-mode=explicit is missing"
    assert triton.repository.directories == set()
    await server.verify()
    assert server.problem is None


async def test_the_wrong_folder_is_named(triton: ScriptedTriton) -> None:
    """After some looks: a new directory may be late on a shared file system."""
    triton.lists_our_folder = False
    server = serve(triton)

    with pytest.raises(WrongServer) as wrong:
        await server.verify()

    assert wrong.value.text == (
        "Triton's --model-repository is not /models/_triton_models: a directory made there is not in Triton's index"
    )
    assert server.problem == wrong.value.text
    assert triton.repository.directories == set()


async def test_a_late_directory_is_no_wrong_folder(triton: ScriptedTriton) -> None:
    """The third look finds it."""
    triton.lists_our_folder = False
    verifying = asyncio.create_task(serve(triton).verify())
    await asyncio.sleep(0.15)
    triton.lists_our_folder = True

    assert await verifying == "2.51.0"


async def test_an_index_that_fails_is_no_wrong_folder_either(triton: ScriptedTriton) -> None:
    """Its own reason is told; once or twice may happen."""
    triton.script["index"] = [CallError("failed to stat file /x")] * 2
    server = serve(triton)
    assert await server.verify() == "2.51.0"

    triton.script["index"] = [CallError("failed to stat file /x")] * 5
    with pytest.raises(ServerError, match="Triton cannot list its model repository: failed to stat file /x") as broken:
        await server.verify()

    assert not isinstance(broken.value, WrongServer)


async def test_an_index_that_does_not_answer_is_no_wrong_folder(triton: ScriptedTriton) -> None:
    """Triton hangs in each of the first looks: that proves nothing."""
    triton.script["index"] = [TritonAway("no answer within 10 s")] * 5

    assert await serve(triton).verify() == "2.51.0"


async def test_a_cancelled_verify_leaves_no_probe(triton: ScriptedTriton) -> None:
    """Whenever it comes."""
    triton.script["unload"] = [60.0]
    verifying = asyncio.create_task(serve(triton).verify())
    await asyncio.sleep(1)
    verifying.cancel()
    await asyncio.wait({verifying})

    assert triton.repository.directories == set()


async def test_purge_sweeps_first_and_clears_last(triton: ScriptedTriton) -> None:
    """A dangling link would break the index, and a directory that goes too early hides its model."""
    ready(triton, "m")

    await serve(triton).purge()

    assert triton.trace == ["sweep", "served", "unload m", "freed m", "served", "clear"]


async def test_purge_frees_all_at_once(triton: ScriptedTriton) -> None:
    """A hundred models take as long as one."""
    ready(triton, *(f"m{number}" for number in range(100)))

    await serve(triton).purge()

    assert asyncio.get_running_loop().time() < 2
    assert set(triton.states.values()) == {GONE}


async def test_purge_bounds_its_calls(triton: ScriptedTriton) -> None:
    """Not its waits."""
    ready(triton, *(f"m{number}" for number in range(100)))
    triton.script["unload"] = [0.5] * 100

    await serve(triton).purge()

    assert triton.most_telling == PARALLEL


async def test_calls_are_bounded_over_all_callers(triton: ScriptedTriton) -> None:
    """An adoption's thousands, a purge, and what ModelMesh asks for."""
    names = [f"m{number}" for number in range(300)]
    ready(triton, *names)
    triton.script["unload"] = [0.5] * 400
    server = serve(triton)

    await asyncio.gather(server.purge(), *(server.unload(name) for name in names))

    assert triton.most_telling == PARALLEL
    assert set(triton.states.values()) == {GONE}


async def test_calls_without_an_answer_hold_up_the_others_for_ten_seconds(triton: ScriptedTriton) -> None:
    """Each waits in Triton for a load of somebody else, or Triton has lost it."""
    names = [f"m{number}" for number in range(2 * PARALLEL)]
    ready(triton, *names)
    triton.script["unload"] = [600.0] * PARALLEL
    server = serve(triton)
    silent = [asyncio.create_task(server.unload(name)) for name in names[:PARALLEL]]
    await asyncio.sleep(0.1)

    await asyncio.gather(*(server.unload(name) for name in names[PARALLEL:]))

    assert asyncio.get_running_loop().time() == pytest.approx(11, abs=0.5)
    assert not any(call.done() for call in silent)
    await asyncio.gather(*silent)


@pytest.mark.parametrize("seed", range(10))
async def test_cancelled_unloads_leave_the_calls_to_others(triton: ScriptedTriton, seed: int) -> None:
    """In any moment, before and after a call has stopped counting."""
    chance = random.Random(seed)
    names = [f"m{number}" for number in range(200)]
    ready(triton, *names)
    triton.script["unload"] = [chance.choice([0.0, 1.0, 10.0, 30.0]) for _ in range(200)]
    server = serve(triton)
    calls = [asyncio.create_task(server.unload(name)) for name in names]
    for call in calls:
        asyncio.get_running_loop().call_later(chance.choice([0, 5, 10, 11, 60]), call.cancel)
    await asyncio.wait(calls)
    triton.script["unload"] = [0.5] * (2 * PARALLEL)
    triton.most_telling = 0

    await asyncio.gather(*(server.unload(name) for name in names[: 2 * PARALLEL]))

    assert triton.most_telling == PARALLEL


async def test_purge_tells_failed_models_once(triton: ScriptedTriton) -> None:
    """They hold no memory, but Triton remembers them; never loaded ones it does not."""
    triton.repository.directories.update({"failed", "never loaded"})
    triton.states["failed"] = GONE

    await serve(triton).purge()

    assert triton.trace == ["sweep", "served", "unload failed", "served", "clear"]


async def test_purge_finds_models_without_a_directory(triton: ScriptedTriton) -> None:
    """Through their statistics."""
    triton.states["hidden"] = "READY"

    await serve(triton).purge()

    assert triton.states == {"hidden": GONE}


async def test_purge_does_without_statistics(triton: ScriptedTriton) -> None:
    """They are a help, not a condition."""
    ready(triton, "m")
    triton.script["served"] = [CallError("statistics are off")] * 2

    await serve(triton).purge()

    assert triton.states == {"m": GONE}


async def test_purge_tells_names_that_are_no_directories(triton: ScriptedTriton) -> None:
    """Older Tritons load `../other/model` for anybody; nothing can be waited for there."""
    triton.states["../m"] = "READY"

    await serve(triton).purge()

    assert "unload ../m" in triton.trace
    assert triton.repository.directories == set()


async def test_purge_waits_for_our_own_loads(triton: ScriptedTriton) -> None:
    """Also for one that Triton does not list yet."""
    triton.script["load"] = [20.0]
    server = serve(triton)
    load = asyncio.create_task(server.load("m", unnoticed))
    await asyncio.sleep(1)
    await cancel(load)

    await server.purge()

    assert triton.trace[-4:] == ["unload m", "freed m", "served", "clear"]


async def test_a_long_purge_says_what_it_waits_for(triton: ScriptedTriton) -> None:
    """The status would stay STARTING without a word."""
    ready(triton, *(f"m{number}" for number in range(7)))
    triton.unload_seconds = 25
    server = serve(triton)
    purge = asyncio.create_task(server.purge())
    await asyncio.sleep(5)
    assert server.problem is None
    await asyncio.sleep(6)

    state = "version 1 has been UNLOADING for 10 s"
    assert server.problem == (
        f"the purge waits for Triton to free m0 ({state}), m1 ({state}), m2 ({state}), m3 ({state}), m4 ({state}) and 2 more"
    )
    await purge
    assert server.problem is None


async def test_a_purge_that_cannot_go_on_raises_one_error(triton: ScriptedTriton) -> None:
    """At once, and leaves no task behind."""
    ready(triton, *(f"m{number}" for number in range(30)))
    triton.script["unload"] = [*[600.0] * 5, WrongServer("polling"), *[600.0] * 24]

    with pytest.raises(WrongServer, match="polling"):
        await serve(triton).purge()

    assert asyncio.get_running_loop().time() < 1
    assert "clear" not in triton.trace
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_cancelled_purge_leaves_no_task(triton: ScriptedTriton) -> None:
    """ModelMesh may ask again."""
    ready(triton, *(f"m{number}" for number in range(30)))
    triton.unload_seconds = 0.5
    server = serve(triton)
    purge = asyncio.create_task(server.purge())
    await asyncio.sleep(0.1)
    purge.cancel()
    await asyncio.wait({purge})
    await asyncio.sleep(1)
    assert asyncio.all_tasks() == {asyncio.current_task()}

    await server.purge()

    assert triton.trace[-1] == "clear"


async def test_purge_goes_on_over_a_restart(triton: ScriptedTriton) -> None:
    """A call that fails is repeated; what died is free."""
    ready(triton, "a", "b")
    triton.script["unload"] = [TritonAway("Connection refused")]
    triton.script["index"] = [TritonAway("Connection refused"), TritonAway("Connection refused")]

    await serve(triton).purge()

    assert triton.trace[-1] == "clear"
    assert set(triton.states.values()) == {GONE}
