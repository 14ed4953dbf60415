"""ModelMesh waits 500 ms, and never retries a failed model that was predicted at 8 KiB or less."""

import json
from collections.abc import Callable

import grpc
import pytest

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb.model_runtime_pb2_grpc import ModelRuntimeStub

DEADLINE_SECONDS = 0.5
"""For so long ModelMesh waits."""
TRIES = 10
UNIT_BYTES = 8192


async def predicted(runtime: ModelRuntimeStub, request: pb.PredictModelSizeRequest) -> int:
    """The size in bytes, told within ModelMesh's deadline; on a busy machine one of some tries is."""
    for left in reversed(range(TRIES)):
        try:
            return (await runtime.predictModelSize(request, timeout=DEADLINE_SECONDS)).sizeInBytes
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.DEADLINE_EXCEEDED or not left:
                raise
    raise AssertionError


@pytest.mark.parametrize("path", ["", "/", "sanity/there/is/no/such/model", "x" * 4096])
@pytest.mark.parametrize("key", ["", "{}", '{"disk_size_bytes": 1}', '{"disk_size_bytes": 0}'])
async def test_any_path_and_key_have_a_size(path: str, key: str, runtime: ModelRuntimeStub) -> None:
    """Even a file of one byte, and a model that is not there."""
    request = pb.PredictModelSizeRequest(modelId="sanity-predicted", modelType="mt:onnx:1|pv:grpc-v2", modelPath=path, modelKey=key)

    for _ in range(2):
        assert await predicted(runtime, request) > UNIT_BYTES


async def test_unreachable_store_does_not_delay_the_answer(runtime: ModelRuntimeStub) -> None:
    """A store whose address answers nothing (TEST-NET-1) costs at most the time that the adapter allows itself."""
    params = {
        "type": "s3",
        "endpoint_url": "http://192.0.2.1:9",
        "access_key_id": "a",
        "secret_access_key": "b",
        "bucket": "b",
        "region": "r",
    }
    request = pb.PredictModelSizeRequest(
        modelId="sanity-far", modelType="onnx", modelPath="m", modelKey=json.dumps({"storage_params": params})
    )

    assert await predicted(runtime, request) > UNIT_BYTES


async def test_size_given_with_the_model_is_believed(runtime: ModelRuntimeStub) -> None:
    """`adapter.modelSizeBytes` is the first source of truth."""
    key = json.dumps({"storage_params": {"adapter.modelSizeBytes": "2000000"}})
    request = pb.PredictModelSizeRequest(modelId="sanity-given", modelType="onnx", modelPath="m", modelKey=key)

    assert await predicted(runtime, request) == 2_000_000


async def test_model_that_loads_is_predicted(runtime: ModelRuntimeStub, some_model: Callable[[], pb.LoadModelRequest]) -> None:
    """What is predicted after a load is what the load said: an under-estimate would over-commit memory."""
    model = some_model()
    loaded = await runtime.loadModel(model, timeout=120)
    request = pb.PredictModelSizeRequest(
        modelId=model.modelId, modelType=model.modelType, modelPath=model.modelPath, modelKey=model.modelKey
    )

    assert await predicted(runtime, request) >= loaded.sizeInBytes
