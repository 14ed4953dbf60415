"""What does not end is told, and a restart of Triton is asked for only where nothing else can help."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from adapter.errors import WrongServer
from adapter.telemetry.metrics import REGISTRY
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


async def test_what_is_stuck_is_gone_with_its_triton(triton: ScriptedTriton) -> None:
    """Counted for each load from its start."""
    async with watched(triton) as server:
        await left(server, triton, *(f"m{number}" for number in range(4)))
        await asyncio.sleep(61)
        assert len(told(server)) == 4
        assert str(server.health().why).startswith("Triton can load nothing more")
        await restart(triton)
        await asyncio.sleep(10)
        assert (told(server), server.health().why, server.queue()) == ([], None, None)


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
    """From the first time on, over all repetitions of it: the lifecycle asks again, at least every 300 s."""
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
        for _ in range(5):
            unload = asyncio.create_task(server.unload("m"))
            await asyncio.sleep(170)
            await cancel(unload)
            await asyncio.sleep(300)
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


async def test_a_refused_unload_is_not_stuck(triton: ScriptedTriton) -> None:
    """Triton has answered; a restart in the same mode would change nothing."""
    async with watched(triton) as server:
        triton.script["unload"] = [WrongServer("polling")]
        with pytest.raises(WrongServer):
            await server.unload("m")
        await asyncio.sleep(20 * MINUTES)

        assert told(server) == []


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
