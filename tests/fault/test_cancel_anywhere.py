"""A load that is cancelled at any moment, followed by an unload, leaves nothing: not in Triton, on disk, or in our table."""

from __future__ import annotations

import asyncio
import contextlib

import grpc
import pytest

from tests.fakes.s3_proxy import Fault
from tests.fault.conftest import PART_BYTES, System

MOMENTS_MS = [0, 1, 2, 4, 6, 9, 12, 16, 20, 25, 30, 40, 50, 65, 80, 100, 130, 160, 200, 250, 300, 400]


@pytest.mark.parametrize("with_unload", [True, False], ids=["then unload", "and nothing else"])
async def test_at_any_moment(system: System, with_unload: bool) -> None:
    """Every few milliseconds of a load of 0.4 s; the same id each time, loaded for real at the end."""
    system.put("m", model=b"class TritonPythonModel: pass", weights=b"w" * 3 * PART_BYTES)
    system.triton.default.load_seconds = 0.15
    system.triton.default.unload_seconds = 0.02
    for moment in MOMENTS_MS:
        load = system.load("m", "m")
        await asyncio.sleep(moment / 1000)
        load.cancel()
        with contextlib.suppress(asyncio.CancelledError, grpc.aio.AioRpcError):
            await load
        if with_unload:
            await system.unload("m")
        else:
            await asyncio.sleep(0.02)  # the server has yet to hear of the cancel
            await system.settled()
        if not load.done() or load.cancelled():
            assert system.leftovers() == [], f"cancelled after {moment} ms"
        else:
            await system.unload("m")
    assert (await system.load("m", "m")).sizeInBytes > 8192
    await system.unload("m")
    assert system.leftovers() == []


@pytest.mark.parametrize("after_bytes", [-1, 0, 100_000], ids=["before the headers", "before the body", "in the body"])
@pytest.mark.parametrize("request_of", ["list-type", "weights.bin"], ids=["listing", "object"])
async def test_a_store_that_hangs_is_left_at_once(system: System, request_of: str, after_bytes: int) -> None:
    """The socket is cut: the unload need not wait for a read timeout."""
    system.put("m", model=b"class TritonPythonModel: pass", weights=b"w" * 3 * PART_BYTES)
    system.proxy.next(Fault(hang_after_bytes=min(after_bytes, 50) if request_of == "list-type" else after_bytes), having=request_of)
    load = system.load("m", "m")
    assert await asyncio.to_thread(system.proxy.hanging.wait, 10)
    load.cancel()
    loop = asyncio.get_running_loop()
    started = loop.time()
    await system.unload("m")

    assert loop.time() - started < 5
    assert system.leftovers() == []


async def test_while_triton_loads(system: System) -> None:
    """Triton cannot cancel: the load ends there, and is undone before the unload is answered."""
    system.put("m", model=b"class TritonPythonModel: pass")
    system.triton.behaviour("m").load_seconds = 1.0
    load = system.load("m", "m")
    await system.triton.arrival("load", "m")
    load.cancel()
    await system.unload("m")

    assert system.leftovers() == []


async def test_while_it_waits_for_a_loading_slot(system: System) -> None:
    """A queued load never reaches Triton."""
    system.put("m", model=b"class TritonPythonModel: pass")
    for name in ("a", "b"):
        system.triton.behaviour(name).load_seconds = 1.0
    running = [system.load(name, "m") for name in ("a", "b")]
    for name in ("a", "b"):
        await system.triton.arrival("load", name)
    queued = system.load("c", "m")
    await asyncio.sleep(0.3)
    queued.cancel()
    await system.unload("c")

    assert "c" not in system.triton.in_memory
    await asyncio.gather(*running)
    await asyncio.gather(system.unload("a"), system.unload("b"))
    assert system.leftovers() == []
