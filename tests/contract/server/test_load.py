"""A load returns when the model serves; Triton's refusals come out as one readable sentence."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import ModelRefused
from tests.contract.server.rig import Rig, is_still_running, unnoticed


async def test_every_version_is_loaded(rig: Rig) -> None:
    """A model with several versions has a row for each."""
    server = rig.connect()
    await rig.place("m", versions=("1", "3"))

    await server.load("m", unnoticed)

    assert sorted((row.version, row.state) for row in (await server.index())["m"]) == [("1", "READY"), ("3", "READY")]


async def test_a_model_that_reports_no_memory_counts_as_zero(rig: Rig) -> None:
    """Most backends report nothing; an unknown model, and one that was unloaded, has no statistics at all."""
    server = rig.connect()
    await rig.place("m")
    await server.load("m", unnoticed)

    assert await server.reported_bytes("m") == 0
    assert await server.reported_bytes("unknown") is None
    await server.unload("m")
    assert await server.reported_bytes("m") is None
    assert not await server.is_ready("m")


async def test_a_long_reason_arrives(rig: Rig) -> None:
    """Longer than gRPC's default limit of 16 KiB for trailers; its end may be cut."""
    server = rig.connect()
    await rig.place("m", error="é" * 20_000)

    with pytest.raises(ModelRefused) as refused:
        await server.load("m", unnoticed)

    assert refused.value.text.startswith("RuntimeError: ééé")
    assert len(refused.value.text) <= 3000


async def test_a_model_without_versions_is_refused(rig: Rig) -> None:
    """The reason comes without the frame."""
    server = rig.connect()
    await rig.place("m", versions=("v1",))

    with pytest.raises(ModelRefused) as refused:
        await server.load("m", unnoticed)

    assert refused.value.text.startswith("at least one version must be available")


async def test_a_failed_model_loads_when_it_is_placed_anew(rig: Rig) -> None:
    """A refusal leaves nothing that stands in the way."""
    server = rig.connect()
    await rig.place("m", error="weights are corrupt")
    with pytest.raises(ModelRefused):
        await server.load("m", unnoticed)
    await server.unload("m")
    await rig.place("m")

    await server.load("m", unnoticed)

    assert await rig.infer("m") == 1.5


async def test_a_given_up_load_gives_its_slot_to_the_next_and_keeps_its_place(rig: Rig) -> None:
    """Triton goes on with it, and has another thread: one more model loads meanwhile, and not two."""
    server = rig.connect(max_loading=1, load_threads=2)
    await rig.place("slow", hold="load")
    await rig.place("next")
    await rig.place("held", hold="load")
    await rig.place("last")
    given_up = asyncio.create_task(server.load("slow", unnoticed))
    await rig.until_state("slow", "LOADING")
    given_up.cancel()
    await asyncio.wait({given_up})
    assert given_up.cancelled()

    await server.load("next", unnoticed)

    assert await rig.states("slow") == ["LOADING"]
    assert server.queue() is None
    given_up = asyncio.create_task(server.load("held", unnoticed))
    await rig.until_state("held", "LOADING")
    given_up.cancel()
    await asyncio.wait({given_up})
    last = asyncio.create_task(server.load("last", unnoticed))
    assert await is_still_running(last)
    assert "though no call waits for the end any more" in (server.queue() or "")
    assert await rig.states("last") == [""]
    rig.let_go("slow", "load")
    await last

    assert await rig.states("slow") == ["READY"]
    rig.let_go("held", "load")
    await rig.until_state("held", "READY")
    assert server.queue() is None
