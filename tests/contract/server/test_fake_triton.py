"""What only the fake can be told to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from adapter.errors import ModelRefused, ServerDied
from adapter.triton.client import TritonClient
from tests.contract.server.rig import FakeRig, unnoticed


@pytest_asyncio.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeRig]:
    """Started, with a client of the plain kind beside our server."""
    rig = FakeRig(tmp_path)
    await rig.start()
    yield rig
    await rig.close()


@pytest_asyncio.fixture
async def client(fake: FakeRig) -> AsyncIterator[TritonClient]:
    """Nothing waits or repeats here."""
    client = TritonClient(fake.target)
    yield client
    await client.close()


async def test_a_hung_load_takes_a_thread_and_can_not_be_unloaded(fake: FakeRig, client: TritonClient) -> None:
    """As the python backend does without model.py: four of them, and nothing loads any more."""
    for number in range(4):
        await fake.place(f"hung{number}")
        (fake.repository.folder / f"hung{number}/1/model.py").unlink()
    await fake.place("m")
    hung = [asyncio.create_task(client.load(f"hung{number}")) for number in range(4)]
    for number in range(4):
        await fake.until_state(f"hung{number}", "LOADING")
    blocked = [asyncio.create_task(client.load("m")), asyncio.create_task(client.unload("hung0"))]
    await fake.triton.arrival("load", "m")
    await fake.triton.arrival("unload", "hung0")
    await client.live(1.0)

    assert not any(task.done() for task in blocked)
    for task in (*hung, *blocked):
        task.cancel()
    await asyncio.wait({*hung, *blocked})


@pytest.mark.parametrize("cause", ["backend", "version"])
async def test_a_model_can_take_triton_down(fake: FakeRig, cause: str) -> None:
    """Every model is gone, and the load is not repeated."""
    server = fake.connect()
    await fake.place("other")
    await server.load("other", unnoticed)
    if cause == "backend":
        await fake.place("m")
        fake.triton.behaviour("m").die = True
    else:
        await fake.place("m", versions=("99999999999999999999",))

    with pytest.raises(ServerDied):
        await server.load("m", unnoticed)

    assert fake.triton.in_memory == {}
    await fake.start()
    assert not await server.is_ready("other")
    assert fake.triton.journal == [("load", "other"), ("load", "m")]


async def test_an_endless_reason_is_read_from_the_index(fake: FakeRig) -> None:
    """It is too long for any trailer."""
    server = fake.connect()
    await fake.place("m", error="x" * 2_000_000)

    with pytest.raises(ModelRefused, match=r"^RuntimeError: xxxx"):
        await server.load("m", unnoticed)
