"""What a backend reports is a fact: more than the usable capacity is given back, and told; seen from ModelMesh."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import grpc
import pytest

from tests.builders import predict_request
from tests.fakes.s3_proxy import Fault
from tests.fault.conftest import MODEL, System, until

TRYING_SECONDS = 60
"""On a busy machine one of the tries in this time is quick enough; with a deadline that does not hold none is."""
GIB, MIB = 1 << 30, 1 << 20
UNFIT_BYTES = 16 * 1024


async def predicted(system: System, path: str, **key: str) -> int:
    """Of a python model at this path, as ModelMesh asks."""
    answer = await system.runtime.predictModelSize(predict_request("predicted", "python", path, **key), timeout=10)
    return int(answer.sizeInBytes)


async def until_predicted(system: System, is_so: Callable[[int], bool]) -> None:
    """A listing that comes too late tells nothing: it is asked again."""
    async with asyncio.timeout(TRYING_SECONDS):
        while not is_so(await predicted(system, "m")):
            pass


@pytest.fixture
def settings() -> dict[str, str]:
    """A capacity of 1 GiB."""
    return {"CONTAINER_MEM_REQ_BYTES": "1280MiB"}


async def test_it_is_unloaded_again_and_refused_with_the_arithmetic(system: System) -> None:
    """Then it is predicted small, and refused before a byte is pulled, until storage has another version."""
    system.put("m", model=MODEL)
    system.triton.behaviour("a").reported_bytes = 2 * GIB

    failure = await system.failure("a", "m")

    assert failure.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert failure.details().startswith("model does not fit and is unloaded again: Triton's backend reports 2048 MiB")
    assert "the usable capacity is 1014 MiB" in failure.details() and "(capacity 1024 MiB" in failure.details()
    await system.settled()
    assert system.leftovers() == []
    await until_predicted(system, lambda size: size == UNFIT_BYTES)

    before = len([request for request in system.proxy.requests if "model.py" in request])
    again = await system.failure("a", "m")
    assert again.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "when it was loaded last" in again.details()
    assert len([request for request in system.proxy.requests if "model.py" in request]) == before

    system.put("m", model=MODEL + b"\n")
    system.triton.behaviour("a").reported_bytes = 3_000_000
    await until_predicted(system, lambda size: size < UNFIT_BYTES)
    assert (await system.load("a", "m")).sizeInBytes == 3_000_000
    await until_predicted(system, lambda size: size == 3_000_000)


async def test_a_neighbour_serves_on_meanwhile(system: System) -> None:
    system.put("m", model=MODEL)
    system.triton.behaviour("large").reported_bytes = 2 * GIB
    await system.load("small", "m")

    await system.failure("large", "m")

    await system.settled()
    assert list(system.triton.in_memory) == ["small"]


async def test_what_comes_back_too_large_after_a_restart_of_triton_is_given_back(system: System) -> None:
    system.put("m", model=MODEL)
    system.triton.behaviour("a").reported_bytes = 3_000_000
    await system.load("a", "m")
    system.triton.behaviour("a").reported_bytes = 2 * GIB

    await system.triton.stop()
    await system.triton.start()

    await until(lambda: system.lifecycle.registry.find("a") is None, "the model is given back")
    await system.settled()
    assert system.leftovers() == []
    assert "when it was loaded last" in str((await system.failure("a", "m")).details())


async def test_a_store_that_hangs_leaves_what_was_measured(system: System) -> None:
    """Within the 500 ms that ModelMesh waits; 200 at once hold up neither each other nor a load."""
    system.put("m", model=MODEL)
    system.triton.behaviour("a").reported_bytes = 30_000_000
    await system.load("a", "m")
    seconds: list[float] = []
    began = time.monotonic()
    while not seconds or min(seconds) >= 0.5:
        assert time.monotonic() - began < TRYING_SECONDS, seconds
        system.proxy.next(Fault(hang_after_bytes=-1), times=1)
        begun = time.monotonic()
        assert await predicted(system, "m") == 30_000_000
        seconds.append(time.monotonic() - begun)

    system.proxy.next(Fault(hang_after_bytes=-1), times=2)
    sizes = await asyncio.gather(*(predicted(system, "m") for _ in range(200)))
    assert set(sizes) == {30_000_000}
    assert (await system.load("b", "m")).sizeInBytes


async def test_a_size_that_only_the_request_tells_is_predicted_within_the_capacity(system: System) -> None:
    """ModelMesh would never place a model that is predicted larger; the store hangs, so nothing else is known."""
    system.put("m", model=MODEL)
    system.proxy.next(Fault(hang_after_bytes=-1), times=1)

    assert 1000 * MIB < await predicted(system, "m", disk_size_bytes=4 * GIB) <= 1014 * MIB
