"""A Triton that is away is waited for; one that dies over a load is not given the same load again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from adapter.telemetry.metrics import REGISTRY
from adapter.triton.server import TritonServer
from tests.contract.server.rig import Rig, is_still_running, unloading, unnoticed


async def test_a_restarted_triton_has_forgotten_its_models(rig: Rig) -> None:
    """The view tells the truth, and the models load again over the same connection."""
    server = rig.connect()
    await rig.place("m")
    await server.load("m", unnoticed)
    await rig.kill()
    await rig.start()

    assert not await server.is_ready("m")
    assert [row.state for row in (await server.index())["m"]] == [""]
    await server.load("m", unnoticed)
    assert await rig.infer("m") == 1.5


async def test_an_unload_goes_on_over_a_restart(rig: Rig) -> None:
    """A Triton that died has freed everything."""
    _, unload = await unloading(rig)

    await rig.kill()
    assert await is_still_running(unload)
    await rig.start()
    async with asyncio.timeout(10):
        await unload

    assert await rig.states("m") == [""]


async def test_a_hung_triton_is_away(rig: Rig) -> None:
    """It accepts connections and answers nothing. Who gives up on an unload is told why."""
    server = rig.connect()
    await rig.place("m")
    await server.load("m", unnoticed)
    rig.freeze()
    watch = asyncio.create_task(server.watch())
    await until(lambda: server.problem is not None)
    unload = asyncio.create_task(server.unload("other"))

    async with asyncio.timeout(30):
        while "no answer within 1 s" not in server.obstacle("other"):
            await asyncio.sleep(0.05)

    assert await is_still_running(unload)
    rig.thaw()
    await unload
    await server.unload("m")
    assert await rig.states("m") == ["UNAVAILABLE"]
    watch.cancel()
    await asyncio.wait({watch})


@asynccontextmanager
async def watched(rig: Rig) -> AsyncIterator[TritonServer]:
    """Our server with its watch, after Triton's first answer."""
    server = rig.connect()
    watch = asyncio.create_task(server.watch())
    await until(lambda: server.problem is None)
    yield server
    watch.cancel()
    await asyncio.wait({watch})
    assert watch.cancelled()


async def until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not is_so():
            await asyncio.sleep(0.005)


async def returned(server: TritonServer) -> bool:
    async with asyncio.timeout(20):
        return await server.returned()


async def tells_nothing(server: TritonServer) -> bool:
    """No return is told within a second."""
    waiting = asyncio.create_task(server.returned())
    done, _ = await asyncio.wait({waiting}, timeout=1)
    waiting.cancel()
    return not done


def restarts() -> float:
    return REGISTRY.get_sample_value("triton_adapter_triton_restarts_total") or 0


async def test_the_watch_notices_a_triton_that_goes_and_comes(rig: Rig) -> None:
    """Without any call from ModelMesh. Its port was closed, so it is another process, and that is counted once."""
    before = restarts()
    async with watched(rig) as server:
        assert await tells_nothing(server), "the first answer is no return"
        await rig.kill()
        await until(lambda: server.problem is not None)
        await rig.start()

        assert await returned(server) is True
        assert server.problem is None
        assert await tells_nothing(server)
        server.confirm_restart()
    assert restarts() == before + 1


@pytest.mark.parametrize("name", [None, "triton"])
async def test_a_triton_that_another_one_replaces_at_once_has_returned(make_rig: Callable[..., Rig], name: str | None) -> None:
    """Nobody may see a closed port. Another name proves the restart; under the same name the index must show it."""
    before = restarts()
    rig = make_rig(name=name)
    await rig.start()
    await rig.place("m")
    async with watched(rig) as server:
        await server.load("m", unnoticed)
        await rig.replace()

        is_certain = await returned(server)
        assert is_certain or name
        assert [row.state for row in (await server.index())["m"]] == [""]
        server.confirm_restart()
    assert restarts() == before + 1


async def test_a_hang_is_a_return_that_proves_nothing(rig: Rig) -> None:
    """As SIGSTOP for a while: the models are there."""
    before = restarts()
    await rig.place("m")
    async with watched(rig) as server:
        await server.load("m", unnoticed)
        rig.freeze()
        await until(lambda: server.problem is not None)
        assert await tells_nothing(server)
        rig.thaw()

        assert await returned(server) is False
        assert await server.is_ready("m")
    assert restarts() == before


async def test_an_old_connection_that_ends_proves_nothing(make_rig: Callable[..., Rig]) -> None:
    """With --grpc-max-connection-age; a load that takes longer than that is waited for all the same."""
    before = restarts()
    rig = make_rig(connection_seconds=0.5)
    await rig.start()
    await rig.place("m", hold="load")
    async with watched(rig) as server:
        load = asyncio.create_task(server.load("m", unnoticed))
        await rig.until_held("m", "load")
        for _ in range(3):
            assert await returned(server) is False
        assert not load.done()
        rig.let_go("m", "load")
        async with asyncio.timeout(20):
            await load

        assert await server.is_ready("m")
    assert restarts() == before


async def test_a_triton_that_answers_late_while_it_lists_has_not_been_away(rig: Rig) -> None:
    """One thread lists and answers: what gets no answer meanwhile proves nothing."""
    await rig.place("m")
    async with watched(rig) as server:
        await server.load("m", unnoticed)
        assert await server._connection.look()
        rig.freeze()
        listing = asyncio.create_task(server.index())
        ready = asyncio.create_task(server.is_ready("m"))
        assert await tells_nothing(server)
        assert await tells_nothing(server)
        assert server.problem is None
        rig.thaw()

        async with asyncio.timeout(20):
            assert [row.state for row in (await listing)["m"]] == ["READY"]
            assert await ready
        assert await tells_nothing(server)


async def test_who_asks_for_the_index_at_a_time_shares_the_answer(rig: Rig) -> None:
    server = rig.connect()
    await rig.place("m")
    await rig.place("n")

    answers = await asyncio.gather(*(server.index() for _ in range(100)))

    assert [{name: [row.name for row in rows] for name, rows in answer.items()} for answer in answers] == [{"m": ["m"], "n": ["n"]}] * 100
    assert len({id(answer["m"][0]) for answer in answers}) == 1
