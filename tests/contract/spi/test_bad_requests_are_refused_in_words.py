"""A request that can never work is refused before Triton sees it, with a sentence that helps and leaks nothing."""

import grpc
import pytest
from grpc import aio

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb.model_runtime_pb2_grpc import ModelRuntimeStub
from tests.contract.spi.bad_inputs import BAD_INPUTS, IDS, SECRET, BadInput
from tests.contract.spi.texts import assert_is_fit_for_users

BY_NAME = pytest.mark.parametrize("bad", BAD_INPUTS, ids=lambda bad: bad.name.replace(" ", "-"))


def request_of(bad: BadInput) -> pb.LoadModelRequest:
    return pb.LoadModelRequest(modelId=bad.model_id, modelType=bad.model_type, modelPath=bad.path, modelKey=bad.key)


@BY_NAME
async def test_load_answers_with_the_code_and_the_words(bad: BadInput, runtime: ModelRuntimeStub, request: pytest.FixtureRequest) -> None:
    """Code by meaning, words that name the field, no quoted credentials."""
    if bad.decided_by == "storage" and not request.config.getoption("--spi-endpoint"):
        pytest.skip("decided by the storage package, which the adapter in this process does not have")

    with pytest.raises(aio.AioRpcError) as caught:
        await runtime.loadModel(request_of(bad), timeout=10)

    text = caught.value.details() or ""
    assert grpc.StatusCode[bad.code] is caught.value.code(), text
    assert [word for word in bad.words if word not in text] == [], text
    assert SECRET not in text
    assert_is_fit_for_users(text)


@BY_NAME
async def test_prediction_of_the_same_is_answered_with_a_size(bad: BadInput, runtime: ModelRuntimeStub) -> None:
    """Only loadModel's words reach the model's status, so predictModelSize must not be what fails."""
    load = request_of(bad)
    predict = pb.PredictModelSizeRequest(modelId=load.modelId, modelType=load.modelType, modelPath=load.modelPath, modelKey=load.modelKey)

    answer = await runtime.predictModelSize(predict, timeout=10)

    assert answer.sizeInBytes > 8192


@pytest.mark.parametrize("bad", IDS, ids=lambda bad: bad.name.replace(" ", "-"))
async def test_unload_of_an_impossible_id_is_done_already(bad: BadInput, runtime: ModelRuntimeStub) -> None:
    """ModelMesh unloads after every failed load, and an error would cost it the space for good."""
    for _ in range(2):
        assert await runtime.unloadModel(pb.UnloadModelRequest(modelId=bad.model_id), timeout=10) == pb.UnloadModelResponse()


def test_table_covers_at_least_forty_cases() -> None:
    """The table is complete enough, and its names are unique."""
    assert len(BAD_INPUTS) >= 40
    assert len({bad.name for bad in BAD_INPUTS}) == len(BAD_INPUTS)
