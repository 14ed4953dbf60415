"""Verify and purge: making sure that Triton is ours, and that nothing is left in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

import grpc.aio
import pytest

from adapter.errors import WrongServer
from adapter.stubs import service_pb2 as pb
from adapter.triton.repository import Repository
from adapter.volume.volume import Volume
from tests.contract.server.rig import Rig, is_still_running, unnoticed


async def test_another_repository_folder_is_named(rig: Rig) -> None:
    """A directory made in ours does not appear in Triton's index."""
    volume = Volume(repository_dir=rig.root / "elsewhere" / "_triton_models", cache_dir=rig.root / "elsewhere" / "_adapter")
    volume.claim()
    ours = Repository(volume)
    server = rig.connect(repository=ours)

    with pytest.raises(WrongServer, match=r"--model-repository is not .*/elsewhere/_triton_models"):
        await server.verify()

    assert os.listdir(ours.folder) == []
    assert server.problem is not None
    ours.close()
    volume.close()


async def test_the_wrong_mode_is_named_by_every_call(make_rig: Callable[..., Rig]) -> None:
    """Its code is the one of a Triton that is away, but nobody waits for it."""
    rig = make_rig(explicit=False)
    await rig.start()
    server = rig.connect()

    for call in (server.verify(), server.load("m", unnoticed), server.unload("m")):
        with pytest.raises(WrongServer, match="--model-control-mode=explicit"):
            async with asyncio.timeout(5):
                await call
    assert "adapter-probe" not in str(os.listdir(rig.repository.folder))


async def test_a_dangling_link_is_no_wrong_folder(rig: Rig) -> None:
    """It is removed, then the index works."""
    server = rig.connect()
    (rig.repository.folder / "stray").symlink_to("/nowhere/at/all")

    assert await server.verify() == "2.51.0"


async def test_the_index_heals_itself(rig: Rig) -> None:
    """A link that comes later is found by the failed listing."""
    server = rig.connect()
    await rig.place("m")
    (rig.repository.folder / "stray").symlink_to("/nowhere/at/all")

    assert [row.name for row in (await server.index())["m"]] == ["m"]
    assert server.problem is None


async def test_purge_leaves_an_empty_triton(rig: Rig) -> None:
    """Ready, failed, loading, and what is no model at all; whoever loaded them."""
    server = rig.connect()
    await rig.place("ready", hold="unload")
    await rig.place("failed", error="no")
    await rig.place("loading", hold="load")
    await rig.place("never loaded")
    (rig.repository.folder / "file").write_text("not a model")
    (rig.repository.folder / "stray").symlink_to("/nowhere/at/all")
    await server.load("ready", unnoticed)
    with suppress(Exception):
        await server.load("failed", unnoticed)
    (rig.repository.folder / "stray").unlink(missing_ok=True)
    foreign = asyncio.ensure_future(rig.stub().RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="loading")))
    await rig.until_state("loading", "LOADING")
    (rig.repository.folder / "stray").symlink_to("/nowhere/at/all")

    purge = asyncio.create_task(rig.connect().purge())
    assert await is_still_running(purge)
    rig.let_go("loading", "load")
    assert await is_still_running(purge)
    rig.let_go("ready", "unload")
    await purge

    assert os.listdir(rig.repository.folder) == []
    for name in ("ready", "failed", "loading", "never loaded"):
        await rig.repository.ensure_directory(name)
    assert {row.state for row in await rig.rows()} <= {"", "UNAVAILABLE"}
    await asyncio.wait({foreign})


async def test_purge_finds_models_whose_directory_is_gone(rig: Rig) -> None:
    """The index does not list them; they serve all the same."""
    server = rig.connect()
    await rig.place("hidden")
    await server.load("hidden", unnoticed)
    await rig.repository.remove("hidden")

    await rig.connect().purge()

    assert os.listdir(rig.repository.folder) == []
    with pytest.raises(grpc.aio.AioRpcError, match="unknown model"):
        await rig.infer("hidden")


async def test_purge_waits_for_a_load_that_was_given_up(rig: Rig) -> None:
    """It is still in Triton, and would be READY after the purge."""
    server = rig.connect()
    await rig.place("m", hold="load")
    load = asyncio.create_task(server.load("m", unnoticed))
    await rig.until_state("m", "LOADING")
    load.cancel()
    await asyncio.wait({load})

    purge = asyncio.create_task(server.purge())
    assert await is_still_running(purge)
    rig.let_go("m", "load")
    await purge

    await rig.repository.ensure_directory("m")
    assert await rig.states("m") == ["UNAVAILABLE"]
