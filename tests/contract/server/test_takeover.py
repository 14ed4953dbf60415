"""Verify and purge: making sure that Triton is ours, and that nothing is left in it."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress

import grpc.aio
import pytest

from adapter.errors import WrongServer
from adapter.triton.repository import Repository
from adapter.triton.stubs import service_pb2 as pb
from adapter.volume.volume import Volume
from tests.contract.server.bed import Bed, is_still_running, unnoticed


async def test_verify_tells_the_version(bed: Bed) -> None:
    """And leaves no probe behind."""
    server = bed.connect()

    assert await server.verify() == "2.51.0"
    assert os.listdir(bed.repository.folder) == []
    assert server.problem is None


async def test_another_repository_folder_is_named(bed: Bed) -> None:
    """A directory made in ours does not appear in Triton's index."""
    volume = Volume(repository_dir=bed.root / "elsewhere" / "_triton_models", cache_dir=bed.root / "elsewhere" / "_adapter")
    volume.claim()
    ours = Repository(volume)
    server = bed.connect(repository=ours)

    with pytest.raises(WrongServer, match=r"--model-repository is not .*/elsewhere/_triton_models"):
        await server.verify()

    assert os.listdir(ours.folder) == []
    assert server.problem is not None
    ours.close()
    volume.close()


async def test_the_wrong_mode_is_named_by_every_call(make_bed: Callable[..., Bed]) -> None:
    """Its code is the one of a Triton that is away, but nobody waits for it."""
    bed = make_bed(explicit=False)
    await bed.start()
    server = bed.connect()

    for call in (server.verify(), server.load("m", unnoticed), server.unload("m")):
        with pytest.raises(WrongServer, match="--model-control-mode=explicit"):
            async with asyncio.timeout(5):
                await call
    assert "adapter-probe" not in str(os.listdir(bed.repository.folder))


async def test_a_dangling_link_is_no_wrong_folder(bed: Bed) -> None:
    """It is removed, then the index works."""
    server = bed.connect()
    (bed.repository.folder / "stray").symlink_to("/nowhere/at/all")

    assert await server.verify() == "2.51.0"


async def test_the_index_heals_itself(bed: Bed) -> None:
    """A link that comes later is found by the failed listing."""
    server = bed.connect()
    await bed.place("m")
    (bed.repository.folder / "stray").symlink_to("/nowhere/at/all")

    assert [row.name for row in await server.index()] == ["m"]
    assert server.problem is None


async def test_purge_leaves_an_empty_triton(bed: Bed) -> None:
    """Ready, failed, loading, and what is no model at all; whoever loaded them."""
    server = bed.connect()
    await bed.place("ready", hold="unload")
    await bed.place("failed", error="no")
    await bed.place("loading", hold="load")
    await bed.place("never loaded")
    (bed.repository.folder / "file").write_text("not a model")
    (bed.repository.folder / "stray").symlink_to("/nowhere/at/all")
    await server.load("ready", unnoticed)
    with suppress(Exception):
        await server.load("failed", unnoticed)
    (bed.repository.folder / "stray").unlink(missing_ok=True)
    foreign = asyncio.ensure_future(bed.stub().RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="loading")))
    await bed.until_state("loading", "LOADING")
    (bed.repository.folder / "stray").symlink_to("/nowhere/at/all")

    purge = asyncio.create_task(bed.connect().purge())
    assert await is_still_running(purge)
    bed.let_go("loading", "load")
    assert await is_still_running(purge)
    bed.let_go("ready", "unload")
    await purge

    assert os.listdir(bed.repository.folder) == []
    for name in ("ready", "failed", "loading", "never loaded"):
        await bed.repository.ensure_directory(name)
    assert {row.state for row in await bed.rows()} <= {"", "UNAVAILABLE"}
    await asyncio.wait({foreign})


async def test_purge_finds_models_whose_directory_is_gone(bed: Bed) -> None:
    """The index does not list them; they serve all the same."""
    server = bed.connect()
    await bed.place("hidden")
    await server.load("hidden", unnoticed)
    await bed.repository.remove("hidden")

    await bed.connect().purge()

    assert os.listdir(bed.repository.folder) == []
    with pytest.raises(grpc.aio.AioRpcError, match="unknown model"):
        await bed.infer("hidden")


async def test_purge_waits_for_a_load_that_was_given_up(bed: Bed) -> None:
    """It is still in Triton, and would be READY after the purge."""
    server = bed.connect()
    await bed.place("m", hold="load")
    load = asyncio.create_task(server.load("m", unnoticed))
    await bed.until_state("m", "LOADING")
    load.cancel()
    await asyncio.wait({load})

    purge = asyncio.create_task(server.purge())
    assert await is_still_running(purge)
    bed.let_go("m", "load")
    await purge

    await bed.repository.ensure_directory("m")
    assert await bed.states("m") == ["UNAVAILABLE"]


async def test_purge_of_an_empty_triton_is_quick(bed: Bed) -> None:
    """The usual case at the start of a pod."""
    async with asyncio.timeout(20):
        await bed.connect().purge()

    assert await bed.rows("m") == []
