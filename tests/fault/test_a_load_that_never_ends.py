"""A load that never ends has a thread of Triton, and nothing else of its neighbours: seen from ModelMesh."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import grpc
import pytest

from adapter.triton import server
from tests.fault.conftest import MODEL, System, until
from tests.integration.conftest import get
from tests.real.ports import free_ports

Code = grpc.StatusCode
HUNG = ["x0", "x1", "x2"]


@pytest.fixture
def settings() -> dict[str, str]:
    """One slot, and four threads in Triton."""
    return {
        "LOADING_CONCURRENCY": "1",
        "TRITON_LOAD_THREADS": "4",
        "LOADTIME_TIMEOUT": "1500",
        "UNLOAD_TIMEOUT_SECONDS": "5",
        "TRITON_SILENT_SECONDS": "4",
        "METRICS_PORT": str(free_ports(1)[0]),
    }


async def health(settings: dict[str, str]) -> tuple[int, dict[str, Any]]:
    status, body = await asyncio.to_thread(get, f"http://127.0.0.1:{settings['METRICS_PORT']}/healthz/triton")
    return status, json.loads(body)


async def red(settings: dict[str, str]) -> str:
    """Until only a restart of Triton helps; why."""
    while (told := await health(settings))[0] == 200:
        await asyncio.sleep(0.1)
    assert told[0] == 503
    return str(told[1]["why"])


async def leave(system: System, *names: str) -> None:
    """Loads that never end, given up by ModelMesh at its timeout; the adapter has said so before."""
    for name in names:
        system.triton.behaviour(name).hang = True
        failure = await system.failure(name, "m")
        assert "Triton has been loading the model" in failure.details(), failure.details()


async def test_three_loads_that_never_end_leave_the_slot_to_the_fourth(system: System, settings: dict[str, str]) -> None:
    """One slot. What hangs is told of, and a restart of Triton would harm more than it helps."""
    system.put("m", model=MODEL)
    await leave(system, *HUNG)

    await asyncio.wait_for(system.load("m", "m"), 10)

    assert system.triton.in_memory == dict.fromkeys([*HUNG, "m"], 1)
    unfinished = [system.unload(name) for name in HUNG]
    await asyncio.wait_for(system.unload("m"), 10)
    for unload in unfinished:
        with pytest.raises(grpc.aio.AioRpcError, match="a load cannot be cancelled") as failed:
            await unload
        assert "the model was not freed within 5 s" in str(failed.value.details())
    status, told = await health(settings)
    assert (status, told["why"], told["live"]) == (200, None, True)
    assert [(each["kind"], each["model_id"]) for each in told["stuck"]] == [("load", name) for name in HUNG]
    assert told["stuck"][0]["seconds"] >= 3


async def test_with_all_threads_taken_the_error_names_who_has_them_and_only_a_restart_helps(
    system: System, settings: dict[str, str]
) -> None:
    """And the restart heals all: nothing of before counts."""
    system.put("m", model=MODEL)
    await leave(system, *HUNG, "x3")

    failure = await system.failure("m", "m")

    assert failure.code() is Code.DEADLINE_EXCEEDED
    assert failure.details().startswith("the loads of models x0 (")
    assert "x1 (" in failure.details() and "x3 (" in failure.details()
    assert "Triton has no free load thread (TRITON_LOAD_THREADS is 4)" in failure.details()
    assert [name for call, name in system.triton.journal if call == "load"] == [*HUNG, "x3"]
    await until(lambda: len(system.triton.in_memory) == 4, "four loads")
    assert (await red(settings)).startswith("Triton can load nothing more: the loads of models x0 (")

    await system.triton.stop()
    await until(lambda: "does not answer" in (system.lifecycle.readiness() or ""), "Triton is missed")
    while (await health(settings))[0] != 200:  # a Triton that is starting must not be killed for what the one before did
        await asyncio.sleep(0.1)
    await system.triton.start()
    await asyncio.wait_for(system.load("m", "m"), 10)

    status, told = await health(settings)
    assert (status, told["stuck"], told["why"]) == (200, [], None)
    await system.settled()
    for name in ("m", *HUNG, "x3"):
        await system.unload(name)
    assert system.leftovers() == []


async def test_retries_of_the_model_that_hangs_take_no_more_threads(system: System) -> None:
    """ModelMesh tries again; the retry waits for the end of the load that Triton has."""
    system.put("m", model=MODEL)
    await leave(system, "x0")
    for _ in range(2):
        await system.failure("x0", "m")
        await asyncio.wait_for(system.load("m", "m"), 10)
        await system.unload("m")

    assert system.triton.journal.count(("load", "x0")) == 1
    assert system.triton.in_memory == {"x0": 1}


async def test_a_model_whose_restore_never_ends_leaves_the_slot_to_others(system: System) -> None:
    """A restore has no caller that would give it up."""
    system.put("m", model=MODEL)
    for name in ("a", "b"):
        await system.load(name, "m")
    system.triton.behaviour("b").hang = True  # restored first: it was loaded last
    await system.triton.restart(0.2)

    await until(lambda: system.triton.in_memory.get("a") == 1, "the other one is restored")
    await asyncio.wait_for(system.load("m", "m"), 10)

    assert ("load", "b") in system.triton.journal[-6:]


async def test_an_unload_that_never_ends_and_a_silence_ask_for_a_restart(
    system: System, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And only after their time: fifteen minutes, and `TRITON_SILENT_SECONDS`."""
    monkeypatch.setattr(server, "UNLOAD_SECONDS", 6.0)
    system.put("m", model=MODEL)
    await system.load("m", "m")
    system.triton.behaviour("m").unload_seconds = 600.0
    with pytest.raises(grpc.aio.AioRpcError, match="the model was not freed within 5 s"):
        await system.unload("m")
    assert (await health(settings))[1]["stuck"] == []
    why = await red(settings)
    assert re.match(r"Triton does not free model m \(\d+ s\), counted from the first unload", why), why
    await system.triton.restart()
    while (await health(settings))[0] != 200:
        await asyncio.sleep(0.1)
    system.triton.freeze()
    why = await red(settings)
    system.triton.thaw()
    assert "has answered nothing for" in why
