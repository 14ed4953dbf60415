"""A bundle is one model for the lifecycle, and several for Triton."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import ModelRefused
from tests.unit.triton.scripted import GONE, ScriptedTriton, cancel, serve, unnoticed

pytestmark = pytest.mark.looptime
INNER = ("m~inner~a", "m~inner~b")


@pytest.fixture(autouse=True)
def bundle(triton: ScriptedTriton) -> None:
    """`m` with two inner models, of which Triton loads one by itself."""
    triton.repository.bundles["m"] = INNER
    triton.repository.first["m"] = INNER[1:]
    triton.repository.directories.update({"m", *INNER})


async def test_what_triton_does_not_load_itself_is_loaded_first(triton: ScriptedTriton) -> None:
    """One after the other, in one loading slot, sent once."""
    server = serve(triton, max_loading=1)
    sent: list[str | None] = []
    load = asyncio.create_task(server.load("m", lambda: sent.append(server.queue())))
    await asyncio.sleep(1.5)
    assert server.queue() == "model m has held the only loading slot for 2 s"
    await load

    assert len(sent) == 1
    assert [step for step in triton.trace if step.startswith("load")] == ["load m~inner~b", "loaded m~inner~b", "load m", "loaded m"]
    assert triton.most_loading == 1


async def test_an_inner_model_that_is_refused_ends_the_load(triton: ScriptedTriton) -> None:
    """With its name, and without asking for the top model."""
    triton.script["load"] = [ModelRefused("no such module")]

    with pytest.raises(ModelRefused, match=r"^inner model b: no such module$"):
        await serve(triton).load("m", unnoticed)

    assert triton.trace == ["load m~inner~b"]


async def test_a_step_that_is_refused_is_named_in_place_of_triton_s_word(triton: ScriptedTriton) -> None:
    """Of the ensemble Triton says only that it depends on another."""
    triton.script["load"] = [0.0, ModelRefused("ensemble 'm' depends on 'm~inner~a' which has no loaded version")]
    triton.states["m~inner~a"] = GONE
    triton.reasons["m~inner~a"] = "Internal: ImportError: no such module"

    with pytest.raises(ModelRefused, match=r"^inner model a: ImportError: no such module$"):
        await serve(triton).load("m", unnoticed)


async def test_the_top_model_s_own_reason_is_kept(triton: ScriptedTriton) -> None:
    """Where no inner one has any; one that was unloaded is no reason."""
    triton.script["load"] = [0.0, ModelRefused("its own fault")]
    triton.states["m~inner~a"] = GONE
    triton.reasons["m~inner~a"] = "unloaded"

    with pytest.raises(ModelRefused, match=r"^its own fault$"):
        await serve(triton).load("m", unnoticed)


async def test_an_unload_ends_when_every_model_is_gone(triton: ScriptedTriton) -> None:
    """The top model is told first: it uses the others."""
    triton.states.update(dict.fromkeys(("m", *INNER), "READY"))
    triton.unload_seconds = 3.0

    await serve(triton).unload("m")

    assert set(triton.states.values()) == {GONE}
    assert [step for step in triton.trace if step.startswith("unload")] == ["unload m", "unload m~inner~a", "unload m~inner~b"]


async def test_an_unload_waits_for_the_load_of_an_inner_model(triton: ScriptedTriton) -> None:
    """Its caller has gone, and Triton goes on with it."""
    triton.load_seconds = 5.0
    server = serve(triton)
    load = asyncio.create_task(server.load("m", unnoticed))
    await asyncio.sleep(1)
    await cancel(load)
    await server.unload("m")

    assert triton.trace.index("loaded m~inner~b") < triton.trace.index("unload m")
    assert "load m" not in triton.trace
    assert triton.states["m~inner~b"] == GONE


async def test_an_inner_model_that_stays_is_named_as_the_obstacle(triton: ScriptedTriton) -> None:
    """By what the index says of it."""
    triton.states["m~inner~b"] = "READY"
    triton.unload_seconds = 100.0

    server = serve(triton)
    unload = asyncio.create_task(server.unload("m"))
    await asyncio.sleep(10)

    assert server.obstacle("m") == "version 1 has been UNLOADING for 10 s"
    await cancel(unload)


@pytest.mark.parametrize("lost", ["m", *INNER])
async def test_a_bundle_is_ready_when_all_its_models_are(triton: ScriptedTriton, lost: str) -> None:
    """Inference through it needs each."""
    triton.states.update(dict.fromkeys(("m", *INNER), "READY"))
    assert await serve(triton).is_ready("m")

    del triton.states[lost]
    assert not await serve(triton).is_ready("m")


async def test_a_bundle_reports_the_memory_of_all(triton: ScriptedTriton) -> None:
    assert await serve(triton).reported_bytes("m") == 3 * 4096
