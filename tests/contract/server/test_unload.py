"""An unload returns when the memory is free: ModelMesh uses the space from that moment on."""

from __future__ import annotations

import asyncio

import pytest

from adapter.stubs import service_pb2 as pb
from adapter.triton.client import TritonClient
from adapter.triton.server import TritonServer
from tests.contract.server.rig import Rig, freed, is_still_running, unloading, unnoticed

GONE = ["UNAVAILABLE"]


async def test_unload_waits_for_a_slow_end(rig: Rig) -> None:
    """Triton's own call returns while the model still finalizes."""
    server, unload = await unloading(rig)
    assert await is_still_running(unload)
    assert server.obstacle("m").startswith("version 1 has been UNLOADING for ")

    await freed(rig, unload)
    assert not await server.is_ready("m")


async def unloading_during_an_inference(rig: Rig) -> tuple[TritonServer, asyncio.Task[float], asyncio.Task[None]]:
    """A model whose inference is held, and which Triton shows as UNLOADING: the server, the inference, the unload."""
    server = rig.connect()
    await rig.place("m", hold="infer")
    await server.load("m", unnoticed)
    inference = asyncio.create_task(rig.infer("m", 4.5))
    await rig.until_held("m", "infer")
    unload = asyncio.create_task(server.unload("m"))
    await rig.until_state("m", "UNLOADING")
    return server, inference, unload


async def test_unload_waits_for_a_running_inference(rig: Rig) -> None:
    """The inference gets its answer first."""
    _, inference, unload = await unloading_during_an_inference(rig)
    assert await is_still_running(unload)

    rig.let_go("m", "infer")
    await unload

    assert await rig.states("m") == GONE
    assert await inference == 4.5


async def test_a_model_that_is_to_go_does_not_count_as_served(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the unload was given up, as by a purge that fails, and has not reached Triton yet; until it is loaded again."""
    server, inference, unload = await unloading_during_an_inference(rig)
    unload.cancel()
    await asyncio.gather(unload, return_exceptions=True)

    async def ready(_client: TritonClient, _name: str) -> bool:
        return True

    with monkeypatch.context() as patched:
        patched.setattr(TritonClient, "ready", ready)
        assert not await server.is_ready("m")
    rig.let_go("m", "infer")
    await inference
    await rig.until_state("m", "UNAVAILABLE")
    await server.load("m", unnoticed)
    assert await server.is_ready("m")


async def test_unload_waits_for_every_version(rig: Rig) -> None:
    """One of them is not enough."""
    server = rig.connect()
    await rig.place("m", versions=("1", "2"))
    await server.load("m", unnoticed)

    await server.unload("m")

    assert await rig.states("m") == GONE * 2


async def test_unload_of_an_unknown_model_is_fine(rig: Rig) -> None:
    """Absent is success, and quick."""
    server = rig.connect()

    async with asyncio.timeout(20):
        await server.unload("never seen")

    assert await rig.states("never seen") == [""]


async def test_two_unloads_at_once_both_wait(rig: Rig) -> None:
    """Neither returns before the memory is free."""
    server = rig.connect()
    await rig.place("m", hold="unload")
    await server.load("m", unnoticed)
    unloads = [asyncio.create_task(server.unload("m")) for _ in range(2)]
    await rig.until_state("m", "UNLOADING")
    assert [await is_still_running(unload) for unload in unloads] == [True, True]

    rig.let_go("m", "unload")
    await asyncio.gather(*unloads)

    assert await rig.states("m") == GONE


async def test_unload_while_loading_wins(rig: Rig) -> None:
    """The load ends, then the unload: never the other way round."""
    server = rig.connect()
    await rig.place("m", hold="load")
    load = asyncio.create_task(server.load("m", unnoticed))
    await rig.until_state("m", "LOADING")
    unload = asyncio.create_task(server.unload("m"))
    assert await is_still_running(unload)
    assert server.obstacle("m").startswith("Triton has been loading the model for ")

    rig.let_go("m", "load")
    await unload

    assert load.done()
    assert await rig.states("m") == GONE


async def test_a_model_whose_directory_is_gone_is_waited_for(rig: Rig) -> None:
    """The index does not list it, which proves nothing: an empty directory makes it visible."""
    server = rig.connect()
    await rig.place("m", hold="unload")
    await server.load("m", unnoticed)
    await rig.repository.remove("m")
    assert await rig.states("m") == []

    unload = asyncio.create_task(server.unload("m"))
    await rig.until_state("m", "UNLOADING")
    await freed(rig, unload)


async def test_a_directory_that_goes_during_the_wait_is_made_again(rig: Rig) -> None:
    """Whoever removed it, the unload still ends, and not too early."""
    _, unload = await unloading(rig)
    await rig.repository.remove("m")
    await rig.until_state("m", "UNLOADING")
    assert await is_still_running(unload)

    await freed(rig, unload)


async def test_a_dangling_link_in_the_repository_does_not_hold_up_an_unload(rig: Rig) -> None:
    """It breaks the index for every model, so it is taken out."""
    server = rig.connect()
    await rig.place("m")
    await server.load("m", unnoticed)
    link = rig.repository.folder / "stray"
    link.symlink_to("/nowhere/at/all")

    await server.unload("m")

    assert not link.is_symlink()
    assert await rig.states("m") == GONE


async def test_an_unload_follows_a_load_of_somebody_else(rig: Rig) -> None:
    """An adapter that was here before has sent it; an unload during a load can kill Triton."""
    server = rig.connect()
    await rig.place("m", hold="load")
    foreign = asyncio.ensure_future(rig.stub().RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="m")))
    await rig.until_state("m", "LOADING")
    unload = asyncio.create_task(server.unload("m"))
    assert await is_still_running(unload)
    assert server.obstacle("m").startswith("version 1 has been LOADING for ")

    rig.let_go("m", "load")
    await asyncio.gather(foreign, unload)

    assert await rig.states("m") == GONE
