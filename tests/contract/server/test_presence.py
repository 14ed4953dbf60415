"""A Triton that is away is waited for; one that dies over a load is not given the same load again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from adapter.errors import ServerUnavailable
from tests.contract.server.bed import Bed, is_still_running, unnoticed


async def test_calls_wait_for_a_triton_that_is_not_there_yet(make_bed: Callable[..., Bed]) -> None:
    """Both a load and an unload: failing would brand the model for minutes."""
    bed = make_bed()
    await bed.start()
    await bed.kill()
    server = bed.connect()
    await bed.place("m")
    load = asyncio.create_task(server.load("m", unnoticed))
    unload = asyncio.create_task(server.unload("other"))
    assert await is_still_running(load)
    assert await is_still_running(unload)
    assert server.problem is not None
    assert "does not answer" in server.problem

    await bed.start()
    async with asyncio.timeout(20):
        await asyncio.gather(load, unload)

    assert await bed.states("m") == ["READY"]
    assert server.problem is None


async def test_a_restarted_triton_has_forgotten_its_models(bed: Bed) -> None:
    """The view tells the truth, and the models load again over the same connection."""
    server = bed.connect()
    await bed.place("m")
    await server.load("m", unnoticed)
    await bed.kill()
    await bed.start()

    assert not await server.is_ready("m")
    assert [row.state for row in await server.index()] == [""]
    await server.load("m", unnoticed)
    assert await bed.infer("m") == 1.5


async def test_a_load_that_triton_died_over_is_not_repeated(bed: Bed) -> None:
    """The model may be what killed it."""
    server = bed.connect()
    await bed.place("m", hold="load")
    load = asyncio.create_task(server.load("m", unnoticed))
    await bed.until_state("m", "LOADING")

    await bed.kill()
    await bed.start()

    with pytest.raises(ServerUnavailable, match="Triton died while it was loading the model"):
        async with asyncio.timeout(10):
            await load
    assert await bed.states("m") == [""]


async def test_an_unload_goes_on_over_a_restart(bed: Bed) -> None:
    """A Triton that died has freed everything."""
    server = bed.connect()
    await bed.place("m", hold="unload")
    await server.load("m", unnoticed)
    unload = asyncio.create_task(server.unload("m"))
    await bed.until_state("m", "UNLOADING")

    await bed.kill()
    assert await is_still_running(unload)
    await bed.start()
    async with asyncio.timeout(10):
        await unload

    assert await bed.states("m") == [""]


async def test_a_hung_triton_is_away(bed: Bed) -> None:
    """It accepts connections and answers nothing. Who gives up on an unload is told why."""
    server = bed.connect()
    await bed.place("m")
    await server.load("m", unnoticed)
    bed.freeze()
    watch = asyncio.create_task(server.watch())
    unload = asyncio.create_task(server.unload("other"))

    async with asyncio.timeout(30):
        while "no answer within 1 s" not in server.obstacle("other"):
            await asyncio.sleep(0.05)

    assert await is_still_running(unload)
    bed.thaw()
    await unload
    await server.unload("m")
    assert await bed.states("m") == ["UNAVAILABLE"]
    watch.cancel()
    await asyncio.wait({watch})


async def test_a_triton_on_a_unix_socket_is_as_good(make_bed: Callable[..., Bed]) -> None:
    """Also after a restart."""
    bed = make_bed(on_socket=True)
    await bed.start()
    server = bed.connect()
    assert bed.target.startswith("unix:/")
    assert await server.verify() == "2.51.0"
    await bed.place("m")
    await server.load("m", unnoticed)
    await bed.kill()
    await bed.start()

    async with asyncio.timeout(10):
        await server.load("m", unnoticed)
        await server.unload("m")

    assert await bed.states("m") == ["UNAVAILABLE"]


async def test_the_watch_notices_a_triton_that_goes_and_comes(bed: Bed) -> None:
    """Without any call from ModelMesh."""
    server = bed.connect()
    watch = asyncio.create_task(server.watch())

    async def until(is_live: bool) -> None:
        async with asyncio.timeout(10):
            while (server.problem is None) is not is_live:
                await asyncio.sleep(0.02)

    await until(True)
    await bed.kill()
    await until(False)
    await bed.start()
    await until(True)
    watch.cancel()
    await asyncio.wait({watch})
    assert server.problem is None
