"""
Triton needs long to list its repository, as on a network volume, and does nothing else meanwhile: seen from ModelMesh.

The rest after an answer is ten times as long, so a test of this folder that waits for several answers takes its seconds.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable

import pytest

from adapter.memory.watch import NOT_TOLD
from tests.fault.conftest import MODEL, System, until, until_ready
from tests.integration.conftest import get
from tests.real.ports import free_ports

[PORT] = free_ports(1)


async def test_loads_and_unloads_are_right_and_inference_has_nine_tenths_of_the_time(system: System, shown: Callable[..., None]) -> None:
    """By the clock of Triton: a quarter of a second for each listing."""
    system.put("m", model=MODEL)
    names = [f"m{number}" for number in range(12)]
    system.triton.index_seconds = 0.25
    await until(lambda: system.lifecycle.registry.is_complete, "the models are taken over")
    before, began = system.triton.listing_seconds, time.monotonic()

    for start in (0, 6):
        some = names[start : start + 6]
        await asyncio.gather(*(system.load(name, "m") for name in some))
        await asyncio.gather(*(system.unload(name) for name in some))
    await asyncio.gather(*(system.load(name, "m") for name in names[:3]))

    share = (system.triton.listing_seconds - before) / (time.monotonic() - began)
    shown("a listing of 0.25 s (scripts/test tests/fault/test_a_slow_index.py)", listing=f"{share:.0%} of the time")
    assert system.triton.in_memory == dict.fromkeys(names[:3], 1)
    assert share < 0.2, "the first listing had no rest before it"
    await asyncio.gather(*(system.unload(name) for name in names[:3]))
    assert system.leftovers() == []


async def test_a_triton_that_lists_is_not_called_away(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """ServerLive has no answer for 3 s, and nothing that was known of Triton is forgotten."""
    monkeypatch.setattr("adapter.triton.index.LONGEST_REST_SECONDS", 1.0)  # not more than an unload has
    system.put("m", model=MODEL)
    await system.load("m", "m")
    system.triton.index_seconds = 3.0
    told: set[str | None] = set()
    listings = system.triton.calls["RepositoryIndex"]
    unload = system.unload("m")
    await until(lambda: system.triton.calls["RepositoryIndex"] > listings, "the index is asked")
    load = system.load("other", "m")
    while not unload.done():
        told.add(system.lifecycle.readiness())
        await asyncio.sleep(0.01)

    await asyncio.gather(unload, load)
    assert not {words for words in told if words and "answer" in words}
    assert system.triton.in_memory == {"other": 1}


@pytest.mark.parametrize("settings", [{"METRICS_PORT": str(PORT)}])
async def test_readyz_tells_of_it(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    """503 while a call waits for it, 200 with a notice when it takes more than a tenth, and nothing when that has passed."""
    monkeypatch.setattr("adapter.triton.index.LONGEST_REST_SECONDS", 1.0)
    monkeypatch.setattr("adapter.triton.index.SLOW_SECONDS", 0.3)
    system.put("m", model=MODEL)
    await until_ready(system.runtime)
    await asyncio.gather(system.load("m", "m"), system.load("n", "m"))
    assert (await readyz())[0] == 200  # on a busy machine with the notice
    system.triton.index_seconds = 2.0
    unload = system.unload("m")
    while (told := await readyz())[0] == 200:  # with a notice, when the 0.3 s pass between its two looks at the index
        assert not unload.done()
    assert told[0] == 503
    assert "so yet" in told[1]
    assert "to list its model repository" in told[1]
    assert "--model-repository" not in told[1]
    await unload

    status, text = await readyz()
    assert status == 200
    needed = re.fullmatch(
        r"ready; Triton is slow: it has needed (\d+) s to list its model repository, "
        rf"which takes (\d+)% of its time while unloads wait for it; {NOT_TOLD}",
        text,
    )
    assert needed is not None
    assert int(needed[1]) >= 2
    assert int(needed[2]) >= 66, "of 2 s, and the rest of 1 s"
    system.triton.index_seconds = 0.01
    await system.unload("n")
    assert await readyz() == (200, f"ready; {NOT_TOLD}")


async def readyz() -> tuple[int, str]:
    status, text = await asyncio.to_thread(get, f"http://127.0.0.1:{PORT}/readyz")
    return status, text.strip()
