"""What a backend reports is a fact: more than the usable capacity is given back, and told; seen from ModelMesh."""

from __future__ import annotations

import asyncio
import time

import grpc
import pytest

from adapter._pb import model_runtime_pb2 as spi
from tests.builders import load_request
from tests.fakes.s3_proxy import Fault
from tests.fault.conftest import System, until

MODEL = b"class TritonPythonModel: pass"
GIB = 1 << 30
UNFIT_BYTES = 16 * 1024


async def predicted(system: System, path: str, **key: str) -> int:
    """Of a python model at this path, as ModelMesh asks."""
    load = load_request("predicted", "python", path, **key)
    request = spi.PredictModelSizeRequest(modelId=load.modelId, modelType=load.modelType, modelPath=path, modelKey=load.modelKey)
    answer = await system.runtime.predictModelSize(request, timeout=10)
    return int(answer.sizeInBytes)


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
    assert await predicted(system, "m") == UNFIT_BYTES

    before = len([request for request in system.proxy.requests if "model.py" in request])
    again = await system.failure("a", "m")
    assert again.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "when it was loaded last" in again.details()
    assert len([request for request in system.proxy.requests if "model.py" in request]) == before

    system.put("m", model=MODEL + b"\n")
    system.triton.behaviour("a").reported_bytes = 3_000_000
    assert await predicted(system, "m") < UNFIT_BYTES
    assert (await system.load("a", "m")).sizeInBytes == 3_000_000 == await predicted(system, "m")


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
    """Within the 500 ms that ModelMesh waits, the quickest of five; 200 at once hold up neither each other nor a load."""
    system.put("m", model=MODEL)
    system.triton.behaviour("a").reported_bytes = 30_000_000
    await system.load("a", "m")
    system.proxy.next(Fault(hang_after_bytes=-1), times=5)
    seconds = []
    for _ in range(5):
        begun = time.monotonic()
        assert await predicted(system, "m") == 30_000_000
        seconds.append(time.monotonic() - begun)
    assert min(seconds) < 0.5

    system.proxy.next(Fault(hang_after_bytes=-1), times=2)
    sizes = await asyncio.gather(*(predicted(system, "m") for _ in range(200)))
    assert set(sizes) == {30_000_000}
    assert (await system.load("b", "m")).sizeInBytes
