"""
The adapter has restarted, and calls come before it knows what Triton has: they wait, and find each model as it is.

Two adapters, one after the other, over one volume and one fake Triton. Triton does not answer while the calls arrive.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import pytest

from adapter._pb import model_runtime_pb2 as spi
from adapter.stubs import service_pb2, service_pb2_grpc
from tests.fakes.s3_proxy import S3Proxy
from tests.fakes.triton import FakeTriton
from tests.fault.conftest import environ_of, until, until_ready
from tests.fault.restarts import Lives, content
from tests.fault.restores import code_of
from tests.real.s3 import S3Server

Code = grpc.StatusCode


@pytest.fixture
async def lives(tmp_path: Path, neighbours: tuple[FakeTriton, S3Proxy], s3: S3Server) -> AsyncIterator[Lives]:
    triton, proxy = neighbours
    lives = Lives(triton, s3, proxy, environ_of(tmp_path, triton.target))
    lives.put()
    try:
        await lives.start()
        yield lives
    finally:
        triton.thaw()
        await lives.end()


async def half_loaded(lives: Lives) -> Callable[[], None]:
    """The adapter dies while Triton loads; the function ends that load."""
    held = [True]
    lives.triton.behaviour("a").is_held = lambda step: step == "load" and bool(held)
    call = lives.load("a")
    await lives.triton.arrival("load", "a")
    await lives.die()
    assert await asyncio.wait_for(call.code(), 10) in {Code.UNAVAILABLE, Code.CANCELLED}
    return held.clear


# ---- a model that serves


async def test_an_equal_load_of_a_model_that_serves_is_answered_without_work(lives: Lives) -> None:
    size = (await lives.load("a")).sizeInBytes
    await lives.restart()
    call = lives.load("a")
    await lives.answer(call)

    assert (await call).sizeInBytes == size
    assert (await lives.size("a")).sizeInBytes == size
    await lives.has("a")
    assert (lives.asked("a"), lives.pulled_bytes) == ([], 0)


async def test_a_load_of_changed_content_replaces_a_model_that_serves(lives: Lives) -> None:
    await lives.load("a")
    await lives.restart(lambda: lives.put(2))
    call = lives.load("a")
    await lives.answer(call)

    await call

    assert (lives.folder("a") / "1" / "model.py").read_bytes() == content(2)
    await lives.has("a")
    assert lives.asked("a") == ["unload", "load"]


async def test_an_unload_of_a_model_that_serves_leaves_nothing_and_its_neighbour_serves_on(lives: Lives) -> None:
    await lives.load("a")
    await lives.load("b")
    await lives.restart()
    call = lives.unload("a")
    await lives.answer(call)

    await call

    assert not lives.folder("a").exists()
    await lives.has("b")
    assert lives.asked("b") == []


async def test_runtime_status_before_the_take_over_has_ended_purges_what_serves(lives: Lives) -> None:
    """ModelMesh has restarted, too."""
    await lives.load("a")
    await lives.restart()
    first = await lives.runtime.runtimeStatus(spi.RuntimeStatusRequest())
    await lives.answer()
    await until_ready(lives.runtime)

    assert first.status == spi.RuntimeStatusResponse.STARTING
    await lives.has()
    assert await code_of(lives.size("a")) is Code.NOT_FOUND


# ---- a model that was being loaded


async def test_a_load_that_triton_has_ended_meanwhile_is_kept(lives: Lives) -> None:
    """ModelMesh sends its load again: the answer is the model that is there."""
    release = await half_loaded(lives)
    release()
    async with grpc.aio.insecure_channel(lives.triton.target) as channel, asyncio.timeout(60):
        triton = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        while not (await triton.ModelReady(service_pb2.ModelReadyRequest(name="a"))).ready:
            pass
    await lives.restart()
    call = lives.load("a")
    await lives.answer(call)

    assert (await call).sizeInBytes > 8192
    await lives.has("a")
    assert (lives.asked("a"), lives.pulled_bytes) == ([], 0)


@pytest.mark.parametrize("wanted", [True, False], ids=["load", "unload"])
async def test_a_model_that_triton_still_loads_is_taken_down_when_that_has_ended(lives: Lives, wanted: bool) -> None:
    """No unload is sent during the load. A new load is a whole one."""
    release = await half_loaded(lives)
    await lives.restart()
    call = lives.load("a") if wanted else lives.unload("a")
    await lives.answer(call)
    await until(lambda: lives.adapter.lifecycle.registry.is_complete, "what Triton has is known")
    assert lives.asked("a") == []
    assert not call.done()
    release()

    await call

    await lives.has(*(["a"] if wanted else []))
    assert lives.asked("a") == (["unload", "load"] if wanted else ["unload"])


async def test_a_model_that_triton_still_loads_is_taken_down_without_a_call(lives: Lives) -> None:
    release = await half_loaded(lives)
    await lives.restart()
    await lives.answer()
    await until(lambda: lives.adapter.lifecycle.registry.is_complete, "what Triton has is known")
    release()

    await lives.has()


# ---- a model that Triton has lost meanwhile


async def lost(lives: Lives) -> int:
    """Both containers have restarted; the size that ModelMesh was told."""
    size = int((await lives.load("a")).sizeInBytes)
    await lives.end()
    await lives.triton.restart()
    lives.triton.freeze()
    await lives.start()
    return size


async def test_a_model_that_triton_has_lost_is_restored_without_a_call(lives: Lives) -> None:
    size = await lost(lives)
    await lives.answer()

    await lives.has("a")
    assert (await lives.size("a")).sizeInBytes == size
    assert (lives.asked("a").count("load"), lives.pulled_bytes) == (1, 0)


async def test_an_equal_load_of_a_model_that_triton_has_lost_pulls_nothing(lives: Lives) -> None:
    size = await lost(lives)
    call = lives.load("a")
    await lives.answer(call)

    assert (await call).sizeInBytes == size
    await lives.has("a")
    assert (lives.asked("a").count("load"), lives.pulled_bytes) == (1, 0)


async def test_a_load_of_changed_content_replaces_a_model_that_triton_has_lost(lives: Lives) -> None:
    await lost(lives)
    lives.put(2)
    call = lives.load("a")
    await lives.answer(call)

    await call

    assert (lives.folder("a") / "1" / "model.py").read_bytes() == content(2)
    await lives.has("a")


async def test_an_unload_of_a_model_that_triton_has_lost_leaves_nothing(lives: Lives) -> None:
    await lost(lives)
    call = lives.unload("a")
    await lives.answer(call)

    await call

    await lives.has()
    assert await code_of(lives.size("a")) is Code.NOT_FOUND


# ---- a directory that is not the one of the journal


def replace(folder: Path, files: dict[str, bytes]) -> None:
    """As another program than the adapter does it."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


async def test_a_foreign_directory_of_a_model_that_serves_is_replaced_by_the_next_load(lives: Lives) -> None:
    """What serves is not known any more, so an equal load is unload and load."""
    await lives.load("a")
    await lives.restart(lambda: replace(lives.folder("a"), {"1/model.py": b"foreign"}))
    call = lives.load("a")
    await lives.answer(call)

    await call

    assert (lives.folder("a") / "1" / "model.py").read_bytes() == content()
    await lives.has("a")
    assert lives.asked("a") == ["unload", "load"]


async def test_a_foreign_directory_that_triton_has_not_loaded_gives_way_to_a_load_of_that_name(lives: Lives) -> None:
    await lives.restart(lambda: replace(lives.folder("a"), {"1/model.py": b"foreign"}))
    call = lives.load("a")
    await lives.answer(call)

    await call

    assert (lives.folder("a") / "1" / "model.py").read_bytes() == content()
    await lives.has("a")


async def test_a_foreign_directory_that_triton_has_not_loaded_is_removed_without_a_call(lives: Lives) -> None:
    await lives.restart(lambda: replace(lives.folder("a"), {"1/model.py": b"foreign"}))
    await lives.answer()

    await lives.has()


async def test_a_bundle_that_has_lost_an_inner_model_is_taken_down(lives: Lives) -> None:
    """Inner models without their top model: an adapter has ended while it placed them."""
    await lives.load("b")
    await lives.restart(lambda: replace(lives.folder("a~inner~x"), {"1/model.py": content()}))
    await lives.answer()

    await lives.has("b")
