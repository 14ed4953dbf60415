"""An unload returns when the memory is free: ModelMesh uses the space from that moment on."""

from __future__ import annotations

import asyncio

from adapter.triton.stubs import service_pb2 as pb
from tests.contract.server.bed import Bed, is_still_running, unnoticed

GONE = ["UNAVAILABLE"]


async def test_unload_waits_for_a_slow_end(bed: Bed) -> None:
    """Triton's own call returns while the model still finalizes."""
    server = bed.connect()
    await bed.place("m", hold="unload")
    await server.load("m", unnoticed)
    unload = asyncio.create_task(server.unload("m"))
    await bed.until_state("m", "UNLOADING")
    assert await is_still_running(unload)
    assert server.obstacle("m").startswith("version 1 has been UNLOADING for ")

    bed.let_go("m", "unload")
    await unload

    assert await bed.states("m") == GONE
    assert not await server.is_ready("m")


async def test_unload_waits_for_a_running_inference(bed: Bed) -> None:
    """The inference gets its answer first."""
    server = bed.connect()
    await bed.place("m", hold="infer")
    await server.load("m", unnoticed)
    inference = asyncio.create_task(bed.infer("m", 4.5))
    await bed.until_held("m", "infer")
    unload = asyncio.create_task(server.unload("m"))
    await bed.until_state("m", "UNLOADING")
    assert await is_still_running(unload)

    bed.let_go("m", "infer")
    await unload

    assert await bed.states("m") == GONE
    assert await inference == 4.5


async def test_unload_waits_for_every_version(bed: Bed) -> None:
    """One of them is not enough."""
    server = bed.connect()
    await bed.place("m", versions=("1", "2"))
    await server.load("m", unnoticed)

    await server.unload("m")

    assert await bed.states("m") == GONE * 2


async def test_unload_of_an_unknown_model_is_fine(bed: Bed) -> None:
    """Absent is success, and quick."""
    server = bed.connect()

    async with asyncio.timeout(20):
        await server.unload("never seen")

    assert await bed.states("never seen") == [""]


async def test_unload_twice_is_fine(bed: Bed) -> None:
    """ModelMesh repeats it at will."""
    server = bed.connect()
    await bed.place("m")
    await server.load("m", unnoticed)

    await server.unload("m")
    await server.unload("m")

    assert await bed.states("m") == GONE


async def test_two_unloads_at_once_both_wait(bed: Bed) -> None:
    """Neither returns before the memory is free."""
    server = bed.connect()
    await bed.place("m", hold="unload")
    await server.load("m", unnoticed)
    unloads = [asyncio.create_task(server.unload("m")) for _ in range(2)]
    await bed.until_state("m", "UNLOADING")
    assert [await is_still_running(unload) for unload in unloads] == [True, True]

    bed.let_go("m", "unload")
    await asyncio.gather(*unloads)

    assert await bed.states("m") == GONE


async def test_unload_while_loading_wins(bed: Bed) -> None:
    """The load ends, then the unload: never the other way round."""
    server = bed.connect()
    await bed.place("m", hold="load")
    load = asyncio.create_task(server.load("m", unnoticed))
    await bed.until_state("m", "LOADING")
    unload = asyncio.create_task(server.unload("m"))
    assert await is_still_running(unload)
    assert server.obstacle("m").startswith("Triton has been loading the model for ")

    bed.let_go("m", "load")
    await unload

    assert load.done()
    assert await bed.states("m") == GONE


async def test_a_cancelled_load_and_its_unload_leave_nothing(bed: Bed) -> None:
    """Triton goes on with the load; the unload waits for its end. Then the model loads again."""
    server = bed.connect()
    await bed.place("m", hold="load")
    load = asyncio.create_task(server.load("m", unnoticed))
    await bed.until_state("m", "LOADING")
    load.cancel()
    await asyncio.wait({load})
    assert load.cancelled()
    unload = asyncio.create_task(server.unload("m"))
    assert await is_still_running(unload)

    bed.let_go("m", "load")
    await unload

    assert await bed.states("m") == GONE
    await server.load("m", unnoticed)
    assert await bed.states("m") == ["READY"]


async def test_a_model_whose_directory_is_gone_is_waited_for(bed: Bed) -> None:
    """The index does not list it, which proves nothing: an empty directory makes it visible."""
    server = bed.connect()
    await bed.place("m", hold="unload")
    await server.load("m", unnoticed)
    await bed.repository.remove("m")
    assert await bed.states("m") == []

    unload = asyncio.create_task(server.unload("m"))
    await bed.until_state("m", "UNLOADING")
    bed.let_go("m", "unload")
    await unload

    assert await bed.states("m") == GONE


async def test_a_directory_that_goes_during_the_wait_is_made_again(bed: Bed) -> None:
    """Whoever removed it, the unload still ends, and not too early."""
    server = bed.connect()
    await bed.place("m", hold="unload")
    await server.load("m", unnoticed)
    unload = asyncio.create_task(server.unload("m"))
    await bed.until_state("m", "UNLOADING")
    await bed.repository.remove("m")
    await bed.until_state("m", "UNLOADING")
    assert await is_still_running(unload)

    bed.let_go("m", "unload")
    await unload

    assert await bed.states("m") == GONE


async def test_an_unload_that_was_given_up_can_be_repeated(bed: Bed) -> None:
    """ModelMesh does so; the next one finds the end."""
    server = bed.connect()
    await bed.place("m", hold="unload")
    await server.load("m", unnoticed)
    unload = asyncio.create_task(server.unload("m"))
    await bed.until_state("m", "UNLOADING")
    unload.cancel()
    await asyncio.wait({unload})

    bed.let_go("m", "unload")
    await bed.connect().unload("m")

    assert await bed.states("m") == GONE


async def test_a_dangling_link_in_the_repository_does_not_hold_up_an_unload(bed: Bed) -> None:
    """It breaks the index for every model, so it is taken out."""
    server = bed.connect()
    await bed.place("m")
    await server.load("m", unnoticed)
    link = bed.repository.folder / "stray"
    link.symlink_to("/nowhere/at/all")

    await server.unload("m")

    assert not link.is_symlink()
    assert await bed.states("m") == GONE


async def test_an_unload_follows_a_load_of_somebody_else(bed: Bed) -> None:
    """An adapter that was here before has sent it; an unload during a load can kill Triton."""
    server = bed.connect()
    await bed.place("m", hold="load")
    foreign = asyncio.ensure_future(bed.stub().RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name="m")))
    await bed.until_state("m", "LOADING")
    unload = asyncio.create_task(server.unload("m"))
    assert await is_still_running(unload)
    assert server.obstacle("m").startswith("version 1 has been LOADING for ")

    bed.let_go("m", "load")
    await asyncio.gather(foreign, unload)

    assert await bed.states("m") == GONE
