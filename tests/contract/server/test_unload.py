"""An unload returns when the memory is free: ModelMesh uses the space from that moment on."""

from __future__ import annotations

import asyncio
import time

import pytest

from adapter.errors import UnloadUnfinished
from tests.contract.server.bed import Bed

GONE = ["UNAVAILABLE"]


async def test_unload_waits_for_a_slow_end(bed: Bed) -> None:
    """Triton's own call returns while the model still finalizes."""
    server = bed.connect()
    await bed.place("m", unload_seconds=1.0)
    await server.load("m")
    started = time.monotonic()

    await server.unload("m")

    assert await bed.states("m") == GONE
    assert time.monotonic() - started >= 1.0
    assert not await server.is_ready("m")


async def test_unload_waits_for_a_running_inference(bed: Bed) -> None:
    """The inference gets its answer first."""
    server = bed.connect()
    await bed.place("m", infer_seconds=1.5)
    await server.load("m")
    await bed.infer("m")  # the first one also opens the connection
    answered: list[float] = []

    async def infer() -> None:
        answered.append(await bed.infer("m", 4.5))

    inference = asyncio.create_task(infer())
    await asyncio.sleep(0.5)
    await server.unload("m")

    assert await bed.states("m") == GONE
    await asyncio.wait_for(inference, 1)
    assert answered == [4.5]


async def test_unload_waits_for_every_version(bed: Bed) -> None:
    """One of them is not enough."""
    server = bed.connect()
    await bed.place("m", versions=("1", "2"), unload_seconds=0.3)
    await server.load("m")

    await server.unload("m")

    assert await bed.states("m") == GONE * 2


async def test_unload_of_an_unknown_model_is_fine(bed: Bed) -> None:
    """Absent is success, and quick."""
    server = bed.connect()

    async with asyncio.timeout(3):
        await server.unload("never seen")

    assert await bed.states("never seen") == [""]


async def test_unload_twice_is_fine(bed: Bed) -> None:
    """ModelMesh repeats it at will."""
    server = bed.connect()
    await bed.place("m")
    await server.load("m")

    await server.unload("m")
    await server.unload("m")

    assert await bed.states("m") == GONE


async def test_two_unloads_at_once_both_wait(bed: Bed) -> None:
    """Neither returns before the memory is free."""
    server = bed.connect()
    await bed.place("m", unload_seconds=0.5)
    await server.load("m")

    async def unload() -> list[str]:
        await server.unload("m")
        return await bed.states("m")

    assert await asyncio.gather(unload(), unload()) == [GONE, GONE]


async def test_unload_while_loading_wins(bed: Bed) -> None:
    """The load ends, then the unload: never the other way round."""
    server = bed.connect()
    await bed.place("m", load_seconds=0.8)
    load = asyncio.create_task(server.load("m"))
    await bed.until_state("m", "LOADING")

    await server.unload("m")

    assert load.done()
    assert await bed.states("m") == GONE


async def test_a_cancelled_load_and_its_unload_leave_nothing(bed: Bed) -> None:
    """Triton goes on with the load; the unload waits for its end. Then the model loads again."""
    server = bed.connect()
    await bed.place("m", load_seconds=0.8)
    load = asyncio.create_task(server.load("m"))
    await bed.until_state("m", "LOADING")
    load.cancel()
    await asyncio.wait({load})
    assert load.cancelled()

    await server.unload("m")

    assert await bed.states("m") == GONE
    await asyncio.sleep(0.3)
    assert await bed.states("m") == GONE
    await server.load("m")
    assert await bed.states("m") == ["READY"]


async def test_a_model_whose_directory_is_gone_is_waited_for(bed: Bed) -> None:
    """The index does not list it, which proves nothing: an empty directory makes it visible."""
    server = bed.connect()
    await bed.place("m", unload_seconds=1.0)
    await server.load("m")
    await bed.repository.remove("m")
    assert await bed.states("m") == []
    started = time.monotonic()

    await server.unload("m")

    assert time.monotonic() - started >= 1.0
    assert await bed.states("m") == GONE


async def test_a_directory_that_goes_during_the_wait_is_made_again(bed: Bed) -> None:
    """Whoever removed it, the unload still ends, and not too early."""
    server = bed.connect()
    await bed.place("m", unload_seconds=1.0)
    await server.load("m")
    started = time.monotonic()
    unload = asyncio.create_task(server.unload("m"))
    await bed.until_state("m", "UNLOADING")
    await bed.repository.remove("m")

    await unload

    assert time.monotonic() - started >= 1.0
    assert await bed.states("m") == GONE


async def test_an_unload_that_does_not_end_says_what_it_waits_for(bed: Bed) -> None:
    """ModelMesh repeats it; the next one finds the end."""
    server = bed.connect(unload_timeout_seconds=0.5)
    await bed.place("m", unload_seconds=1.0)
    await server.load("m")

    with pytest.raises(UnloadUnfinished, match=r"not freed the model within 0\.5 s: version 1 is UNLOADING for \d s"):
        await server.unload("m")
    await bed.connect().unload("m")

    assert await bed.states("m") == GONE


async def test_an_unload_behind_an_endless_load_says_so(bed: Bed) -> None:
    """Bounded too, and the load is not overtaken."""
    server = bed.connect(unload_timeout_seconds=0.3)
    await bed.place("m", load_seconds=1.5)
    load = asyncio.create_task(server.load("m"))
    await bed.until_state("m", "LOADING")

    with pytest.raises(UnloadUnfinished, match=r"it is loading it since \d s, and a load cannot be cancelled"):
        await server.unload("m")

    await load
    assert await bed.states("m") == ["READY"]


async def test_a_dangling_link_in_the_repository_does_not_hold_up_an_unload(bed: Bed) -> None:
    """It breaks the index for every model, so it is taken out."""
    server = bed.connect()
    await bed.place("m")
    await server.load("m")
    link = bed.repository.folder / "stray"
    link.symlink_to("/nowhere/at/all")

    await server.unload("m")

    assert not link.is_symlink()
    assert await bed.states("m") == GONE
