"""What we rely on, asked of Triton itself by a plain client: the fake and the real one agree."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import grpc
import grpc.aio
import pytest

from adapter.triton.stubs import service_pb2 as pb
from tests.contract.server.bed import FAILING_LINE, Bed


def load(bed: Bed, name: str) -> grpc.aio.UnaryUnaryCall:
    """A RepositoryModelLoad under way."""
    return bed.stub().RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name=name))


def unload(bed: Bed, name: str) -> grpc.aio.UnaryUnaryCall:
    """A RepositoryModelUnload under way."""
    return bed.stub().RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name=name))


async def refusal(call: grpc.aio.UnaryUnaryCall) -> tuple[grpc.StatusCode, str]:
    """Code and details of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details() or ""


async def test_the_unload_call_returns_before_the_memory_is_free(bed: Bed) -> None:
    """The reason for the whole wait."""
    await bed.place("m", hold="unload")
    await load(bed, "m")

    await unload(bed, "m")

    assert await bed.states("m") == ["UNLOADING"]
    bed.let_go("m", "unload")
    await bed.until_state("m", "UNAVAILABLE")
    assert [row.reason for row in await bed.rows("m")] == ["unloaded"]


async def test_nothing_but_the_index_tells_a_model_that_is_being_freed_from_one_that_is_gone(bed: Bed) -> None:
    """Cheaper calls say the same of both: they look for versions that are READY."""
    await bed.place("m", hold="unload")
    await load(bed, "m")
    await unload(bed, "m")
    told: dict[str, list[object]] = {}
    for state in ("UNLOADING", "UNAVAILABLE"):
        await bed.until_state("m", state)
        told[state] = [
            (await bed.stub().ModelReady(pb.ModelReadyRequest(name="m"))).ready,
            await refusal(bed.stub().ModelStatistics(pb.ModelStatisticsRequest(name="m"))),
            await refusal(bed.stub().ModelInfer(pb.ModelInferRequest(model_name="m"))),
        ]
        if state == "UNLOADING":
            bed.let_go("m", "unload")

    assert told["UNLOADING"] == told["UNAVAILABLE"]
    assert told["UNLOADING"][0] is False


async def test_a_cancelled_load_goes_on(bed: Bed) -> None:
    """Neither a cancel nor a deadline reaches it."""
    await bed.place("m", hold="load")
    call = load(bed, "m")
    await bed.until_state("m", "LOADING")

    call.cancel()
    bed.let_go("m", "load")

    await bed.until_state("m", "READY")
    assert call.cancelled()


async def test_the_index_lists_existing_directories_only(bed: Bed) -> None:
    """A model in memory is not enough, and a directory that was never loaded has an empty state."""
    await bed.place("m")
    await load(bed, "m")
    await bed.repository.remove("m")
    assert await bed.rows() == []

    await bed.repository.ensure_directory("m")
    await bed.repository.ensure_directory("other")

    assert await bed.states("m") == ["READY"]
    assert [(row.version, row.state) for row in await bed.rows("other")] == [("", "")]


async def test_files_in_the_repository_are_ignored(bed: Bed) -> None:
    """Only directories, and links to them, are models."""
    (bed.repository.folder / "file").write_text("")
    os.mkdir(bed.root / "outside")
    (bed.repository.folder / "link").symlink_to(bed.root / "outside")

    assert [row.name for row in await bed.rows()] == ["link"]


async def test_one_dangling_link_breaks_the_index_for_all(bed: Bed) -> None:
    """INTERNAL, until it is gone."""
    (bed.repository.folder / "stray").symlink_to("/nowhere/at/all")

    code, text = await refusal(bed.stub().RepositoryIndex(pb.RepositoryIndexRequest()))

    assert code is grpc.StatusCode.INTERNAL
    assert text.startswith("failed to stat file")


async def test_an_equal_load_is_a_no_op_and_newer_files_are_loaded(bed: Bed) -> None:
    """
    The old copy serves until the new one is ready.

    After a first load the files of a python model *are* newer: its stub has written `__pycache__`.
    """
    await bed.place("m")
    await load(bed, "m")
    await load(bed, "m")
    bed.hold("m", "load")
    async with asyncio.timeout(20):
        await load(bed, "m")
    bed.let_go("m", "load")
    await bed.place("m", error="a worse one")

    code, text = await refusal(load(bed, "m"))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "a worse one" in text
    assert await bed.infer("m") == 1.5


async def test_a_load_during_the_unload_hides_the_old_copy(bed: Bed) -> None:
    """READY, although the memory is held twice: why we never load before the unload is done."""
    await bed.place("m", hold="unload")
    await load(bed, "m")
    await unload(bed, "m")
    assert await bed.states("m") == ["UNLOADING"]

    await load(bed, "m")

    assert await bed.states("m") == ["READY"]
    bed.let_go("m", "unload")


async def test_what_cannot_be_attempted_is_internal(bed: Bed) -> None:
    """No directory, or nothing in it: the reason is in the log only."""
    await bed.repository.ensure_directory("empty")

    for name in ("missing", "empty"):
        assert await refusal(load(bed, name)) == (
            grpc.StatusCode.INTERNAL,
            f"failed to load '{name}', failed to poll from model repository",
        )


async def test_a_failed_load_is_an_invalid_argument_in_a_frame(bed: Bed) -> None:
    """And the index keeps the reason without the frame."""
    await bed.place("m", error="weights are corrupt")

    code, text = await refusal(load(bed, "m"))

    reason = f"Internal: RuntimeError: weights are corrupt\n\nAt:\n  {bed.repository.folder}/m/1/model.py({FAILING_LINE}): initialize\n"
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text == f"load failed for model 'm': version 1 is at UNAVAILABLE state: {reason};\n"
    assert [(row.state, row.reason) for row in await bed.rows("m")] == [("UNAVAILABLE", reason)]


async def test_a_server_in_another_mode_says_unavailable(make_bed: Callable[..., Bed]) -> None:
    """The code of a Triton that is away."""
    bed = make_bed(explicit=False)
    await bed.start()

    for call in (load(bed, "m"), unload(bed, "m")):
        assert await refusal(call) == (
            grpc.StatusCode.UNAVAILABLE,
            "explicit model load / unload is not allowed if polling is enabled",
        )


async def test_inference_of_what_is_not_loaded_is_not_found(bed: Bed) -> None:
    """What makes ModelMesh load it again."""
    await bed.place("m")
    await load(bed, "m")
    await unload(bed, "m")
    await bed.until_state("m", "UNAVAILABLE")

    for name in ("m", "unknown"):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await bed.infer(name)
        assert failed.value.code() is grpc.StatusCode.NOT_FOUND


async def test_statistics_show_models_without_a_directory(bed: Bed) -> None:
    """The only way to find them."""
    await bed.place("m")
    await load(bed, "m")
    await bed.repository.remove("m")

    statistics = await bed.stub().ModelStatistics(pb.ModelStatisticsRequest())

    assert [(model.name, model.version) for model in statistics.model_stats] == [("m", "1")]
