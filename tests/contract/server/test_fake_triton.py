"""What only the fake can be told to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from adapter.errors import ModelRefused, ServerDied
from tests.contract.server.rig import FakeRig, unnoticed


@pytest_asyncio.fixture
async def fake(tmp_path: Path) -> AsyncIterator[FakeRig]:
    """Started, with a client of the plain kind beside our server."""
    rig = FakeRig(tmp_path)
    await rig.start()
    yield rig
    await rig.close()


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
