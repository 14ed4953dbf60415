"""What we rely on, asked of Triton itself by a plain client: the fake and the real one agree."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable

import grpc
import grpc.aio
import pytest

from adapter.stubs import service_pb2 as pb
from tests.contract.server.rig import FAILING_LINE, Rig


def load(rig: Rig, name: str) -> grpc.aio.UnaryUnaryCall:
    """A RepositoryModelLoad under way."""
    return rig.stub().RepositoryModelLoad(pb.RepositoryModelLoadRequest(model_name=name))


def unload(rig: Rig, name: str) -> grpc.aio.UnaryUnaryCall:
    """A RepositoryModelUnload under way."""
    return rig.stub().RepositoryModelUnload(pb.RepositoryModelUnloadRequest(model_name=name))


async def refusal(call: grpc.aio.UnaryUnaryCall) -> tuple[grpc.StatusCode, str]:
    """Code and details of a call that must fail."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code(), failed.value.details() or ""


async def test_the_unload_call_returns_before_the_memory_is_free(rig: Rig) -> None:
    """The reason for the whole wait."""
    await rig.place("m", hold="unload")
    await load(rig, "m")

    await unload(rig, "m")

    assert await rig.states("m") == ["UNLOADING"]
    rig.let_go("m", "unload")
    await rig.until_state("m", "UNAVAILABLE")
    assert [row.reason for row in await rig.rows("m")] == ["unloaded"]


async def test_nothing_but_the_index_tells_a_model_that_is_being_freed_from_one_that_is_gone(rig: Rig) -> None:
    """Cheaper calls say the same of both: they look for versions that are READY."""
    await rig.place("m", hold="unload")
    await load(rig, "m")
    await unload(rig, "m")
    told: dict[str, list[object]] = {}
    for state in ("UNLOADING", "UNAVAILABLE"):
        await rig.until_state("m", state)
        told[state] = [
            (await rig.stub().ModelReady(pb.ModelReadyRequest(name="m"))).ready,
            await refusal(rig.stub().ModelStatistics(pb.ModelStatisticsRequest(name="m"))),
            await refusal(rig.stub().ModelInfer(pb.ModelInferRequest(model_name="m"))),
        ]
        if state == "UNLOADING":
            rig.let_go("m", "unload")

    assert told["UNLOADING"] == told["UNAVAILABLE"]
    assert told["UNLOADING"][0] is False


async def test_a_cancelled_load_goes_on(rig: Rig) -> None:
    """Neither a cancel nor a deadline reaches it."""
    await rig.place("m", hold="load")
    call = load(rig, "m")
    await rig.until_state("m", "LOADING")

    call.cancel()
    rig.let_go("m", "load")

    await rig.until_state("m", "READY")
    assert call.cancelled()


async def test_the_index_lists_existing_directories_only(rig: Rig) -> None:
    """A model in memory is not enough, and a directory that was never loaded has an empty state."""
    await rig.place("m")
    await load(rig, "m")
    await rig.repository.remove("m")
    assert await rig.rows() == []

    await rig.repository.ensure_directory("m")
    await rig.repository.ensure_directory("other")

    assert await rig.states("m") == ["READY"]
    assert [(row.version, row.state) for row in await rig.rows("other")] == [("", "")]


async def test_files_in_the_repository_are_ignored(rig: Rig) -> None:
    """Only directories, and links to them, are models."""
    (rig.repository.folder / "file").write_text("")
    os.mkdir(rig.root / "outside")
    (rig.repository.folder / "link").symlink_to(rig.root / "outside")

    assert [row.name for row in await rig.rows()] == ["link"]


async def test_one_dangling_link_breaks_the_index_for_all(rig: Rig) -> None:
    """INTERNAL, until it is gone."""
    (rig.repository.folder / "stray").symlink_to("/nowhere/at/all")

    code, text = await refusal(rig.stub().RepositoryIndex(pb.RepositoryIndexRequest()))

    assert code is grpc.StatusCode.INTERNAL
    assert text.startswith("failed to stat file")


async def test_an_equal_load_is_a_no_op_and_newer_files_are_loaded(rig: Rig) -> None:
    """
    The old copy serves until the new one is ready.

    After a first load the files of a python model *are* newer: its stub has written `__pycache__`.
    """
    await rig.place("m")
    await load(rig, "m")
    await load(rig, "m")
    rig.hold("m", "load")
    async with asyncio.timeout(20):
        await load(rig, "m")
    rig.let_go("m", "load")
    await rig.place("m", error="a worse one")

    code, text = await refusal(load(rig, "m"))

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "a worse one" in text
    assert await rig.infer("m") == 1.5


async def test_a_load_during_the_unload_hides_the_old_copy(rig: Rig) -> None:
    """READY, although the memory is held twice: why we never load before the unload is done."""
    await rig.place("m", hold="unload")
    await load(rig, "m")
    await unload(rig, "m")
    assert await rig.states("m") == ["UNLOADING"]

    await load(rig, "m")

    assert await rig.states("m") == ["READY"]
    rig.let_go("m", "unload")


async def test_what_cannot_be_attempted_is_internal(rig: Rig) -> None:
    """No directory, or nothing in it: the reason is in the log only."""
    await rig.repository.ensure_directory("empty")

    for name in ("missing", "empty"):
        assert await refusal(load(rig, name)) == (
            grpc.StatusCode.INTERNAL,
            f"failed to load '{name}', failed to poll from model repository",
        )


async def test_a_failed_load_is_an_invalid_argument_in_a_frame(rig: Rig) -> None:
    """And the index keeps the reason without the frame."""
    await rig.place("m", error="weights are corrupt")

    code, text = await refusal(load(rig, "m"))

    reason = f"Internal: RuntimeError: weights are corrupt\n\nAt:\n  {rig.repository.folder}/m/1/model.py({FAILING_LINE}): initialize\n"
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert text == f"load failed for model 'm': version 1 is at UNAVAILABLE state: {reason};\n"
    assert [(row.state, row.reason) for row in await rig.rows("m")] == [("UNAVAILABLE", reason)]


async def test_a_server_in_another_mode_says_unavailable(make_rig: Callable[..., Rig]) -> None:
    """The code of a Triton that is away."""
    rig = make_rig(explicit=False)
    await rig.start()

    for call in (load(rig, "m"), unload(rig, "m")):
        assert await refusal(call) == (
            grpc.StatusCode.UNAVAILABLE,
            "explicit model load / unload is not allowed if polling is enabled",
        )


async def test_inference_of_what_is_not_loaded_is_not_found(rig: Rig) -> None:
    """What makes ModelMesh load it again."""
    await rig.place("m")
    await load(rig, "m")
    await unload(rig, "m")
    await rig.until_state("m", "UNAVAILABLE")

    for name in ("m", "unknown"):
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await rig.infer(name)
        assert failed.value.code() is grpc.StatusCode.NOT_FOUND


async def test_statistics_show_models_without_a_directory(rig: Rig) -> None:
    """The only way to find them."""
    await rig.place("m")
    await load(rig, "m")
    await rig.repository.remove("m")

    statistics = await rig.stub().ModelStatistics(pb.ModelStatisticsRequest())

    assert [(model.name, model.version) for model in statistics.model_stats] == [("m", "1")]
