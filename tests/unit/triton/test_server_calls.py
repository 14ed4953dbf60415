"""Loads, unloads and questions: what is repeated, what is not, and what the words are."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import ModelRefused, ServerDied, ServerError, WrongServer
from adapter.model import ServerModel
from adapter.telemetry.metrics import REGISTRY
from adapter.triton.client import AnswerLost, CallError, TritonDied
from tests.unit.triton.scripted import GONE, ScriptedTriton, cancel, serve, unnoticed

pytestmark = pytest.mark.looptime


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


def counted(name: str) -> float:
    return REGISTRY.get_sample_value(f"triton_adapter_{name}") or 0.0


async def loaded(triton: ScriptedTriton, *names: str) -> None:
    for name in names:
        triton.repository.directories.add(name)
        triton.states[name] = "READY"


async def test_a_reason_too_long_to_send_is_read_from_the_index(triton: ScriptedTriton) -> None:
    """The index has it whole."""
    triton.repository.directories.add("m")
    triton.states["m"] = GONE
    triton.reasons["m"] = "Internal: RuntimeError: a long one\n\nAt:\n  /m/1/model.py(4): initialize\n"
    triton.script["load"] = [AnswerLost("Triton's answer is too long")]

    with pytest.raises(ModelRefused) as refused:
        await serve(triton).load("m", unnoticed)

    assert refused.value.text == "RuntimeError: a long one (1/model.py line 4, in initialize)"


async def test_a_reason_that_nobody_has_is_in_the_log(triton: ScriptedTriton) -> None:
    """There is always a sentence."""
    triton.script["load"] = [AnswerLost("Triton's answer is too long")]

    with pytest.raises(ModelRefused, match="Triton gave no reason; its log may have it"):
        await serve(triton).load("m", unnoticed)


async def test_a_refusal_comes_through(triton: ScriptedTriton) -> None:
    """At once, and the model can be loaded again."""
    triton.script["load"] = [ModelRefused("no weights")]
    server = serve(triton)

    with pytest.raises(ModelRefused, match="no weights"):
        await server.load("m", unnoticed)
    await server.load("m", unnoticed)


async def test_an_unload_makes_the_directory_before_it_tells_triton(triton: ScriptedTriton) -> None:
    """Without it the index would say nothing."""
    triton.states["m"] = "READY"

    await serve(triton).unload("m")

    assert triton.trace == ["directory m", "unload m", "freed m"]


async def obstacle_after(seconds: float, triton: ScriptedTriton) -> str:
    """What an unload that its caller gives up then was waiting for."""
    server = serve(triton)
    unload = asyncio.create_task(server.unload("m"))
    await asyncio.sleep(seconds)
    await cancel(unload)
    return server.obstacle("m")


async def test_an_unload_has_no_bound_of_its_own(triton: ScriptedTriton) -> None:
    """It waits for a Triton that is away for as long as its caller does."""
    triton.is_away = True

    assert await obstacle_after(3600, triton) == "Triton does not answer at triton:8001: Connection refused"


async def test_an_unload_that_triton_does_not_finish_says_the_state(triton: ScriptedTriton) -> None:
    """And since when."""
    await loaded(triton, "m")
    triton.unload_seconds = 1000

    assert await obstacle_after(170.05, triton) == "version 1 has been UNLOADING for 170 s"


async def test_an_unload_that_is_not_answered_says_so(triton: ScriptedTriton) -> None:
    """Triton waits in it for a load that somebody else sent."""
    triton.script["unload"] = [10_000.0]

    assert await obstacle_after(10, triton) == "Triton has not answered the unload"


async def test_an_unload_over_a_broken_connection_is_sent_again(triton: ScriptedTriton) -> None:
    """Twice does no harm."""
    await loaded(triton, "m")
    triton.script["unload"] = [TritonDied("Socket closed")]

    await serve(triton).unload("m")

    assert triton.trace == ["unload m", "unload m", "freed m"]


async def test_an_unload_follows_a_load_of_somebody_else(triton: ScriptedTriton) -> None:
    """Of an adapter that was here before: an unload during a load can kill Triton."""
    server = serve(triton)
    triton.repository.directories.add("m")
    load = asyncio.create_task(triton.load("m"))
    triton.load_seconds = 60
    unload = asyncio.create_task(server.unload("m"))
    await asyncio.sleep(30)
    assert server.obstacle("m") == "version 1 has been LOADING for 30 s"

    await asyncio.gather(load, unload)

    assert triton.trace == ["load m", "loaded m", "unload m", "freed m"]


async def test_the_index_is_not_asked_before_the_unload_of_a_model_that_we_loaded(
    triton: ScriptedTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton has answered our load, so no load of the model is on its way; each look at the index disturbs inference."""
    index = triton.index

    async def traced(names: frozenset[str] | None, timeout_seconds: float) -> list[ServerModel]:
        triton.trace.append("index")
        return await index(names, timeout_seconds)

    monkeypatch.setattr(triton, "index", traced)
    server = serve(triton)
    triton.repository.directories.add("m")
    await server.load("m", lambda: None)

    await server.unload("m")
    assert triton.trace[:4] == ["load m", "loaded m", "unload m", "index"]

    triton.trace.clear()
    await server.unload("m")
    assert triton.trace[:2] == ["index", "unload m"], "after an unload the next load may be anybody's"


async def test_a_connection_that_breaks_in_a_second_load_leaves_the_first_answer_behind(triton: ScriptedTriton) -> None:
    """A restarted Triton had lost the model of the first load; it may still work on the second."""
    server = serve(triton)
    triton.repository.directories.add("m")
    await server.load("m", unnoticed)
    triton.script["load"] = [TritonDied("Socket closed")]
    triton.server_name = "another"
    with pytest.raises(ServerDied):
        await server.load("m", unnoticed)
    triton.states["m"] = "LOADING"
    unload = asyncio.create_task(server.unload("m"))
    await asyncio.sleep(30)
    assert server.obstacle("m") == "version 1 has been LOADING for 30 s"

    triton.states["m"] = "READY"
    await unload

    assert triton.trace[-2:] == ["unload m", "freed m"]


async def test_the_wait_for_the_memory_is_measured(triton: ScriptedTriton) -> None:
    """From Triton's answer on."""
    await loaded(triton, "m")
    triton.unload_seconds = 4
    seconds, count = counted("unload_wait_seconds_sum"), counted("unload_wait_seconds_count")

    await serve(triton).unload("m")

    assert counted("unload_wait_seconds_count") == count + 1
    assert counted("unload_wait_seconds_sum") - seconds == pytest.approx(4, abs=0.2)


async def test_the_wrong_mode_is_not_waited_for(triton: ScriptedTriton) -> None:
    """Nothing would change."""
    triton.script["unload"] = [WrongServer("--model-control-mode=explicit is missing")]

    with pytest.raises(WrongServer):
        await serve(triton).unload("m")

    assert now() == 0


async def test_an_unload_that_triton_refuses_is_an_error(triton: ScriptedTriton) -> None:
    """Never an endless wait, and never success."""
    triton.script["unload"] = [CallError("Internal: broken")]

    with pytest.raises(ServerError, match="Triton does not unload the model: broken"):
        await serve(triton).unload("m")


async def test_a_broken_index_does_not_end_an_unload(triton: ScriptedTriton) -> None:
    """The folder is swept, and the index is asked again."""
    await loaded(triton, "m")
    triton.script["index"] = [CallError("failed to stat file /stray")]
    server = serve(triton)

    await server.unload("m")

    assert triton.trace == ["sweep", "unload m", "freed m"]
    assert server.problem is None


async def test_an_index_that_stays_broken_is_the_obstacle(triton: ScriptedTriton) -> None:
    """Its reason is in the text."""
    triton.script["index"] = [CallError("failed to stat file /stray") for _ in range(10_000)]

    assert await obstacle_after(10, triton) == "Triton cannot list its model repository: failed to stat file /stray"


async def test_questions_wait_for_triton(triton: ScriptedTriton) -> None:
    """All of them."""
    await loaded(triton, "m")
    triton.is_away = True
    server = serve(triton)
    asked = [asyncio.create_task(call) for call in (server.is_ready("m"), server.reported_bytes("m"), server.index())]
    await asyncio.sleep(60)
    assert not any(task.done() for task in asked)

    triton.is_away = False
    ready, reported, rows = await asyncio.gather(*asked)

    assert (ready, reported, [row.name for row in rows]) == (True, 4096, ["m"])


async def test_refused_questions_have_an_answer(triton: ScriptedTriton) -> None:
    """Not ready, and no word on its memory."""
    triton.script["ready"] = [CallError("no such model")]
    triton.script["statistics"] = [CallError("no such model")]
    server = serve(triton)

    assert await server.is_ready("m") is False
    assert await server.reported_bytes("m") is None


async def test_close_leaves_no_task(triton: ScriptedTriton) -> None:
    """Neither a load, nor the unload watch."""
    await loaded(triton, "m")
    triton.unload_seconds = triton.load_seconds = 1000
    server = serve(triton)
    calls = [asyncio.create_task(server.load("n", unnoticed)), asyncio.create_task(server.unload("m"))]
    await asyncio.sleep(1)
    for call in calls:
        call.cancel()
    await asyncio.wait(calls)

    await server.close()

    left = {task.get_name() for task in asyncio.all_tasks()}
    assert not {name for name in left if name.startswith("load ") or name == "unload watch"}
    assert triton.trace[-1] == "close"
