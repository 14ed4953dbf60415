"""
Loads and unloads of light models in a Triton with a thousand others: what waiting for the truth adds to Triton's own time.

In virtual time, where the adapter's own steps take none: 23 ms for a load, 24 for an unload, one at a time in Triton, and 3 ms
for a look at the index, as measured of the real one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import pytest

from tests.unit.triton.one_thread import OneThread
from tests.unit.triton.scripted import GONE, serve, unnoticed

pytestmark = pytest.mark.looptime
LOAD_SECONDS, UNLOAD_SECONDS, INDEX_SECONDS = 0.023, 0.024, 0.003
ROUNDS = 40


class BusyTriton(OneThread):
    """One load or unload call at a time, whoever sends it."""

    def __init__(self, free_seconds: float) -> None:
        super().__init__(index_seconds=INDEX_SECONDS)
        self.load_seconds = 0.0
        self.unload_seconds = free_seconds
        self.graph = asyncio.Lock()

    async def load(self, name: str, overrides: Mapping[str, str | bytes] | None = None) -> None:
        async with self.graph:
            await asyncio.sleep(LOAD_SECONDS)
            await super().load(name)

    async def unload(self, name: str, *, has_dependents: bool = True) -> None:
        async with self.graph:
            await asyncio.sleep(UNLOAD_SECONDS)
            await super().unload(name)


def now() -> float:
    return asyncio.get_running_loop().time()


@pytest.mark.parametrize("clients", [1, 2, 8])
@pytest.mark.parametrize("free_ms", [0, 1, 3, 8])
async def test_load_and_unload_take_little_more_than_triton_alone(clients: int, free_ms: int) -> None:
    """The memory is free some milliseconds after Triton's answer, as its threads end."""
    triton = BusyTriton(free_ms / 1000)
    server = serve(triton, max_loading=clients, load_threads=clients)

    async def client(name: str) -> None:
        triton.repository.directories.add(name)
        for _ in range(ROUNDS):
            await server.load(name, unnoticed)
            await server.unload(name)
            assert triton.states[name] == GONE

    began = now()
    await asyncio.gather(*(client(f"m{number}") for number in range(clients)))

    seconds = now() - began
    alone = max(clients * (LOAD_SECONDS + UNLOAD_SECONDS), LOAD_SECONDS + UNLOAD_SECONDS + free_ms / 1000) * ROUNDS
    assert seconds <= 1.15 * alone
    assert triton.busy_seconds() / seconds <= 0.1
    assert triton.asked["index"] <= 1.2 * ROUNDS * clients + 5
    assert triton.asked["live"] <= 2


async def test_a_row_of_unloads_after_a_row_of_loads_waits_for_no_rest() -> None:
    """Ten models come, ten go; a look takes 5 ms. Over all of it the index is busy with us for a tenth of the time."""
    triton = BusyTriton(0)
    triton.index_seconds = 0.005
    server = serve(triton)
    names = [f"m{number}" for number in range(10)]
    triton.repository.directories.update(names)

    began = now()
    for _ in range(5):
        for name in names:
            await server.load(name, unnoticed)
        for name in names:
            await server.unload(name)

    seconds = now() - began
    assert seconds <= 1.25 * 50 * (LOAD_SECONDS + UNLOAD_SECONDS)
    assert triton.busy_seconds() / seconds <= 0.1 + 0.05 / seconds


async def test_models_that_need_a_second_cost_two_looks() -> None:
    """As those of the python backend: 1.0 to 1.3 s."""
    triton = BusyTriton(0)
    triton.repository.directories.add("m")
    server = serve(triton)
    waited = 0.0
    for number in range(ROUNDS):
        triton.unload_seconds = 1.0 + 0.3 * (number * 7 % 10) / 10
        await server.load("m", unnoticed)
        began = now()
        await server.unload("m")
        waited += now() - began - UNLOAD_SECONDS - triton.unload_seconds

    assert waited / ROUNDS < 0.08
    assert triton.asked["index"] <= 3.5 * ROUNDS + 10
