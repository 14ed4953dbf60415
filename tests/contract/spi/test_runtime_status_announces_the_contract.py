"""runtimeStatus carries what ModelMesh needs to start, within the limits that it enforces."""

import asyncio

import pytest

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb.model_runtime_pb2_grpc import ModelRuntimeStub

pytestmark = pytest.mark.usefixtures("may_purge")

MIB = 1024 * 1024
Status = pb.RuntimeStatusResponse


async def until_ready(runtime: ModelRuntimeStub) -> pb.RuntimeStatusResponse:
    """Poll as ModelMesh does: FAILING ends it at once."""
    async with asyncio.timeout(90):
        while (answer := await runtime.runtimeStatus(pb.RuntimeStatusRequest(), timeout=60)).status != Status.READY:
            assert answer.status == Status.STARTING
            await asyncio.sleep(0.5)
    return answer


async def test_it_becomes_ready_again_and_again(runtime: ModelRuntimeStub) -> None:
    """ModelMesh may restart at any time."""
    for _ in range(2):
        assert (await until_ready(runtime)).status == Status.READY


async def test_numbers_are_such_that_modelmesh_starts(runtime: ModelRuntimeStub) -> None:
    """Source: ModelMesh.java 1264-1276, 682-685."""
    answer = await until_ready(runtime)

    default = answer.defaultModelSizeInBytes
    assert default > 8192
    assert answer.capacityInBytes >= max(2 * default, min(512 * MIB, 10 * default))
    assert answer.maxLoadingConcurrency >= 1
    assert answer.modelLoadingTimeoutMs >= 100
    assert answer.runtimeVersion


async def test_only_inference_is_let_through(runtime: ModelRuntimeStub) -> None:
    """Nothing that controls Triton is on the list, and the model's name is field 1 of each request."""
    answer = await until_ready(runtime)

    expected = {f"inference.GRPCInferenceService/Model{name}": [1] for name in ("Infer", "Metadata", "Ready", "Config", "Statistics")}
    assert {method: list(about.idInjectionPath) for method, about in answer.methodInfos.items()} == expected
    assert answer.allowAnyMethod is False
