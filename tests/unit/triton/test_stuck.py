"""What does not end is told, and a restart of Triton is asked for only where nothing else can help."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapter.errors import WrongServer
from adapter.telemetry.metrics import REGISTRY
from adapter.triton import stuck
from adapter.triton.client import PortClosed, TritonDied, TritonSilent
from adapter.triton.server import TritonServer
from tests.unit.triton.scripted import ScriptedTriton, cancel, serve, unnoticed

pytestmark = pytest.mark.looptime

MINUTES = 60


@asynccontextmanager
async def watched(triton: ScriptedTriton, *, load_threads: int = 4) -> AsyncIterator[TritonServer]:
    """With an announced timeout of 30 s, after the first answer."""
    server = serve(triton, max_loading=1, load_threads=load_threads, load_timeout_seconds=30)
    watch = asyncio.create_task(server.watch())
    await asyncio.sleep(0.1)
    yield server
    watch.cancel()
    await asyncio.wait({watch})
    await server.close()


async def left(server: TritonServer, triton: ScriptedTriton, *names: str) -> None:
    """Loads that do not end, given up after 25 s each."""
    triton.load_seconds = math.inf
    for name in names:
        triton.repository.directories.add(name)
        load = asyncio.create_task(server.load(name, unnoticed))
        await asyncio.sleep(25)
        await cancel(load)


def told(server: TritonServer) -> list[tuple[str, str]]:
    return [(each.kind, each.model_id) for each in server.health().stuck]


def metric(kind: str) -> float | None:
    return REGISTRY.get_sample_value("triton_adapter_stuck", {"kind": kind})


async def restart(triton: ScriptedTriton, *, seconds: float = 5) -> None:
    """As `kill -9`: connections break, the port is closed for a while, nothing is in memory afterwards."""
    triton.script["live"] = [PortClosed("Connection refused")] * int(seconds / 0.2)
    for name in list(triton.states):
        if triton.states[name] == "LOADING":
            triton.cut(name)
    triton.states.clear()
    await asyncio.sleep(seconds + 5)
    assert not triton.script["live"]


async def test_nothing_that_is_asked_is_stuck_at_first(triton: ScriptedTriton) -> None:
    async with watched(triton) as server:
        health = server.health()

        assert (health.is_live, health.stuck, health.why, health.load_threads) == (True, (), None, 4)
        assert json.loads(health.as_json()) == {
            "format": 1, "live": True, "silent_seconds": 0.1, "load_threads": 4, "stuck": [], "why": None,
        }  # fmt: skip


async def test_one_load_that_does_not_end_is_told_and_is_green(triton: ScriptedTriton) -> None:
    """From twice the announced timeout on, and for ever."""
    async with watched(triton) as server:
        await left(server, triton, "m")
        await asyncio.sleep(34)
        assert told(server) == []
        await asyncio.sleep(2)

        assert told(server) == [("load", "m")]
        assert server.health().why is None
        assert (metric("load"), metric("unload")) == (1, 0)
        await asyncio.sleep(60 * MINUTES)
        assert server.health().why is None


async def test_all_threads_with_loads_that_do_not_end_are_red(triton: ScriptedTriton) -> None:
    """Triton says of itself that it is live. The oldest come first."""
    async with watched(triton, load_threads=3) as server:
        await left(server, triton, "a", "b", "c")
        assert told(server) == [("load", "a")]
        assert server.health().why is None
        await asyncio.sleep(40)

        health = server.health()
        assert told(server) == [("load", "a"), ("load", "b"), ("load", "c")]
        assert health.why == (
            "Triton can load nothing more: the loads of models a (115 s), b (90 s), c (65 s) do not end, and keep all its load threads"
        )
        assert health.is_live


async def test_what_an_earlier_adapter_has_left_is_stuck_in_the_end_and_gone_with_its_triton(triton: ScriptedTriton) -> None:
    """Counted from the start of this adapter. A thousand more of them cost nothing: they wait in Triton."""
    names = [f"m{number}" for number in range(1000)]
    triton.states |= dict.fromkeys(names, "LOADING")
    triton.repository.directories |= set(names)
    async with watched(triton) as server:
        await server.index()
        await asyncio.sleep(59)
        assert told(server) == []
        await asyncio.sleep(2)
        assert len(told(server)) == 4
        assert str(server.health().why).startswith("Triton can load nothing more")
        triton.states.clear()
        await restart(triton)
        await asyncio.sleep(10)
        assert (told(server), server.health().why, server.queue()) == ([], None, None)


async def test_a_restart_of_triton_ends_all_that_was_stuck(triton: ScriptedTriton) -> None:
    """Green from the moment in which the port is closed: the next Triton must not be killed for what the last one did."""
    async with watched(triton, load_threads=2) as server:
        await left(server, triton, "a", "b")
        unload = asyncio.create_task(server.unload("a"))
        await asyncio.sleep(16 * MINUTES)
        assert server.health().why is not None

        triton.script["live"] = [PortClosed("Connection refused")] * 20
        await asyncio.sleep(3)
        assert (server.health().why, server.health().stuck, server.health().is_live) == (None, (), False)
        assert server.health().silent_seconds == 0
        await restart(triton)
        await unload

        assert (server.health().why, server.health().stuck, server.health().is_live) == (None, (), True)
        await asyncio.sleep(60 * MINUTES)
        assert server.health().stuck == ()


async def test_a_cut_connection_ends_nothing(triton: ScriptedTriton) -> None:
    """As `--grpc-max-connection-age` cuts it: Triton has the load still."""
    async with watched(triton, load_threads=1) as server:
        await left(server, triton, "a")
        for _ in range(3):
            await asyncio.sleep(20)
            if triton.loading:
                triton.cut("a")
        await asyncio.sleep(20)

        assert told(server) == [("load", "a")]
        assert server.health().why is not None
        triton.states["a"] = "UNAVAILABLE"
        await asyncio.sleep(10)
        assert told(server) == []


async def test_an_unload_that_does_not_end_is_red_after_fifteen_minutes(triton: ScriptedTriton) -> None:
    """From the first time on, over all repetitions of it, and also after ModelMesh has stopped asking."""
    triton.unload_seconds = math.inf
    async with watched(triton) as server:
        triton.repository.directories.add("m")
        triton.states["m"] = "READY"
        for _ in range(5):
            unload = asyncio.create_task(server.unload("m"))
            await asyncio.sleep(170)
            await cancel(unload)
            await asyncio.sleep(5)
        assert server.health().why is None
        assert told(server) == []
        await asyncio.sleep(30)

        assert server.health().why == (
            "Triton does not free model m (905 s), counted from the first unload; ModelMesh no longer uses that memory"
        )
        assert told(server) == [("unload", "m")]
        assert metric("unload") == 1
        await asyncio.sleep(30 * MINUTES)
        assert told(server) == [("unload", "m")]


async def test_an_unload_that_ended_after_its_caller_had_gone_is_forgotten(triton: ScriptedTriton) -> None:
    """Nobody asks for it again; the index is asked now and then, and not at all afterwards."""
    triton.unload_seconds = 400
    async with watched(triton) as server:
        triton.repository.directories.add("m")
        triton.states["m"] = "READY"
        unload = asyncio.create_task(server.unload("m"))
        await asyncio.sleep(170)
        await cancel(unload)
        await asyncio.sleep(20 * MINUTES)
        asked = triton.asked["index"]
        await asyncio.sleep(20 * MINUTES)

        assert told(server) == []
        assert triton.asked["index"] == asked


async def test_an_unload_that_was_never_told_is_not_stuck_when_its_load_has_ended(triton: ScriptedTriton) -> None:
    """It waited for a load, and nobody asks again: Triton would free the model at once."""
    async with watched(triton) as server:
        triton.load_seconds = 300
        triton.repository.directories.add("m")
        load = asyncio.create_task(server.load("m", unnoticed))
        await asyncio.sleep(25)
        await cancel(load)
        unload = asyncio.create_task(server.unload("m"))
        await asyncio.sleep(170)
        await cancel(unload)
        await asyncio.sleep(30 * MINUTES)

        assert told(server) == []


async def test_an_unload_that_waits_for_a_triton_that_is_away_is_not_stuck_when_triton_is_back(
    triton: ScriptedTriton, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it was away: what was asked of nobody is not in it."""
    monkeypatch.setattr(stuck, "UNLOAD_SECONDS", 60.0)
    async with watched(triton) as server:
        triton.repository.directories.add("m")
        triton.states["m"] = "READY"
        triton.unload_seconds = 100
        triton.script["live"] = [PortClosed("Connection refused")] * 10_000
        await asyncio.sleep(2)
        unload = asyncio.create_task(server.unload("m"))
        await asyncio.sleep(2 * MINUTES)
        triton.script["live"].clear()
        await asyncio.sleep(20)

        assert server.health().is_live
        assert told(server) == []
        await unload


async def test_a_refused_unload_is_not_stuck(triton: ScriptedTriton) -> None:
    """Triton has answered; a restart in the same mode would change nothing."""
    async with watched(triton) as server:
        triton.script["unload"] = [WrongServer("polling")]
        with pytest.raises(WrongServer):
            await server.unload("m")
        await asyncio.sleep(20 * MINUTES)

        assert told(server) == []


async def test_silence_is_red_after_a_minute(triton: ScriptedTriton) -> None:
    """Of a Triton that accepts connections. Its first answer is green again."""
    async with watched(triton) as server:
        triton.silence = True
        await asyncio.sleep(58)
        assert server.health().why is None
        assert not server.health().is_live
        await asyncio.sleep(5)

        why = server.health().why
        assert why is not None and why.startswith("Triton accepts connections and has answered nothing for 6")
        assert 60 <= server.health().silent_seconds <= 64
        triton.silence = False
        await asyncio.sleep(2)
        assert (server.health().why, server.health().is_live) == (None, True)


@pytest.mark.parametrize("failure", [PortClosed("Connection refused"), TritonDied("Socket closed")], ids=["closed", "broken"])
async def test_a_triton_that_is_dead_or_starting_is_not_silent(triton: ScriptedTriton, failure: Exception) -> None:
    """For as long as that takes; a broken connection is followed by another answer, or none."""
    async with watched(triton) as server:
        triton.silence = True
        await asyncio.sleep(50)
        triton.script["live"] = [failure]
        await asyncio.sleep(20)

        assert (server.health().why is None) is isinstance(failure, PortClosed)


async def test_silence_counts_from_the_start_of_the_adapter(triton: ScriptedTriton) -> None:
    """An adapter that is restarted beside a Triton that hangs is in no hurry, and finds it."""
    triton.silence = True
    async with watched(triton) as server:
        await asyncio.sleep(55)
        assert server.health().why is None
        await asyncio.sleep(10)
        assert server.health().why is not None


async def test_sixteen_are_told_the_oldest_first(triton: ScriptedTriton) -> None:
    async with watched(triton, load_threads=40) as server:
        await left(server, triton, *(f"m{number}" for number in range(20)))
        await asyncio.sleep(100)

        assert told(server) == [("load", f"m{number}") for number in range(16)]
        assert metric("load") == 20


def test_silence_is_no_break_of_a_connection() -> None:
    """Callers tell the two apart."""
    assert not issubclass(TritonSilent, TritonDied | PortClosed)
