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
from tests.fault.conftest import code_of, environ_of, until, until_ready
from tests.fault.restarts import Lives, content
from tests.real.ports import free_ports
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


def replace(folder: Path, files: dict[str, bytes]) -> None:
    """As another program than the adapter does it."""
    shutil.rmtree(folder, ignore_errors=True)
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


async def half_loaded(lives: Lives) -> Callable[[], None]:
    """The adapter dies while Triton loads; the function ends that load."""
    held = [True]
    lives.triton.behaviour("a").is_held = lambda step: step == "load" and bool(held)
    call = lives.load("a")
    await lives.triton.arrival("load", "a")
    await lives.die()
    assert await asyncio.wait_for(call.code(), 10) in {Code.UNAVAILABLE, Code.CANCELLED}
    return held.clear


async def loaded(lives: Lives) -> None:
    """Triton has ended the load."""
    async with grpc.aio.insecure_channel(lives.triton.target) as channel, asyncio.timeout(60):
        triton = service_pb2_grpc.GRPCInferenceServiceStub(channel)
        while not (await triton.ModelReady(service_pb2.ModelReadyRequest(name="a"))).ready:
            pass


# what the next adapter finds of the model `a`; the call that comes; what Triton is asked to do with it; whether it is pulled
WAYS = [
    ("it serves", "equal load", [], False),
    ("it serves", "changed load", ["unload", "load"], True),
    ("it serves", "unload", ["unload"], False),
    ("its load has ended meanwhile", "equal load", [], False),
    ("Triton still loads it", "equal load", ["unload", "load"], True),
    ("Triton still loads it", "unload", ["unload"], False),
    ("Triton still loads it", "no call", ["unload"], False),
    ("Triton has lost it", "no call", ["load"], False),
    ("Triton has lost it", "equal load", ["load"], False),
    ("Triton has lost it", "changed load", ["load"], True),
    ("Triton has lost it", "unload", [], False),
    ("it serves from a foreign directory", "equal load", ["unload", "load"], True),
    ("a foreign directory", "equal load", ["load"], True),
    ("a foreign directory", "no call", [], False),
]


@pytest.mark.parametrize(("found", "way", "asked", "is_pulled"), WAYS)
async def test_a_model_is_found_as_it_is(lives: Lives, found: str, way: str, asked: list[str], is_pulled: bool) -> None:
    """No unload is sent during a load; what was lost is restored without a byte; a neighbour serves on, or is restored."""
    await lives.load("b")
    size, release = 0, None
    if found in ("Triton still loads it", "its load has ended meanwhile"):
        release = await half_loaded(lives)
    elif found != "a foreign directory":
        size = (await lives.load("a")).sizeInBytes
    if found == "its load has ended meanwhile" and release:
        release()
        await loaded(lives)

    def meanwhile() -> None:
        if way == "changed load":
            lives.put(2)
        if "foreign" in found:
            replace(lives.folder("a"), {"1/model.py": b"foreign"})

    await lives.restart(meanwhile, with_triton=found == "Triton has lost it")
    calls = [] if way == "no call" else [lives.unload("a") if way == "unload" else lives.load("a")]
    await lives.answer(*calls)
    if found == "Triton still loads it" and release:
        await until(lambda: lives.adapter.lifecycle.registry.is_complete, "what Triton has is known")
        assert lives.asked("a") == []
        assert not any(call.done() for call in calls)
        release()
    answers = await asyncio.gather(*calls)

    is_there = way in ("equal load", "changed load") or (way, found) == ("no call", "Triton has lost it")
    await lives.has("b", *(["a"] if is_there else []))
    assert [step for step in lives.asked("a") if step in asked or step == "load"] == asked
    assert bool(lives.pulled_bytes) is is_pulled
    assert lives.asked("b") == (["load"] if found == "Triton has lost it" else [])
    if not is_there:
        assert await code_of(lives.size("a")) is Code.NOT_FOUND
        return
    assert (lives.folder("a") / "1" / "model.py").read_bytes() == content(2 if way == "changed load" else 1)
    assert {answer.sizeInBytes for answer in answers} <= {(await lives.size("a")).sizeInBytes}
    if way != "changed load" and size:
        assert (await lives.size("a")).sizeInBytes == size


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


async def test_a_bundle_that_has_lost_an_inner_model_is_taken_down(lives: Lives) -> None:
    """Inner models without their top model: an adapter has ended while it placed them."""
    await lives.load("b")
    await lives.restart(lambda: replace(lives.folder("a~inner~x"), {"1/model.py": content()}))
    await lives.answer()

    await lives.has("b")


async def test_a_purge_keeps_a_directory_of_the_user_under_a_name_of_an_earlier_process(
    tmp_path: Path, neighbours: tuple[FakeTriton, S3Proxy], s3: S3Server
) -> None:
    triton, proxy = neighbours
    settings = {"V2_REST_PORT": str(free_ports(1)[0]), "V2_REPOSITORY_API": "true", "HTTP_ADDRESS": "127.0.0.1"}
    lives = Lives(triton, s3, proxy, environ_of(tmp_path, triton.target, **settings))
    lives.put()
    try:
        await lives.start()
        await lives.load("mine")
        await lives.die()
        shutil.rmtree(lives.folder("mine"))
        await triton.restart()
        await lives.start()
        await until(lambda: lives.adapter.lifecycle.registry.is_complete, "the take-over")
        replace(lives.folder("mine"), {"1/model.py": b"theirs"})

        await until_ready(lives.runtime)

        assert (lives.folder("mine") / "1" / "model.py").read_bytes() == b"theirs"
    finally:
        await lives.end()
