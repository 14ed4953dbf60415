"""Each call may come twice, and in any order: ModelMesh repeats what it is not sure of."""

from collections.abc import Callable

import grpc
import pytest
from grpc import aio

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb.model_runtime_pb2_grpc import ModelRuntimeStub

SomeModel = Callable[[], pb.LoadModelRequest]


def unload_of(model: pb.LoadModelRequest) -> pb.UnloadModelRequest:
    return pb.UnloadModelRequest(modelId=model.modelId)


async def size_of(runtime: ModelRuntimeStub, model: pb.LoadModelRequest, loaded: pb.LoadModelResponse) -> int:
    """What a load has said; where it says 0, modelSize is asked, as ModelMesh does."""
    size = loaded.sizeInBytes or (await runtime.modelSize(pb.ModelSizeRequest(modelId=model.modelId), timeout=30)).sizeInBytes
    return int(size)


async def test_equal_load_of_a_loaded_model_is_confirmed(runtime: ModelRuntimeStub, some_model: SomeModel) -> None:
    """The second answer is the first one's."""
    model = some_model()

    first = await runtime.loadModel(model, timeout=120)
    size = await size_of(runtime, model, first)
    second = await runtime.loadModel(model, timeout=120)

    assert first.maxConcurrency == second.maxConcurrency
    assert await size_of(runtime, model, second) == size > 8192


async def test_size_of_a_loaded_model_is_that_of_its_load(runtime: ModelRuntimeStub, some_model: SomeModel) -> None:
    """modelSize never says 0, and does not contradict loadModel."""
    model = some_model()
    loaded = await runtime.loadModel(model, timeout=120)

    answer = await runtime.modelSize(pb.ModelSizeRequest(modelId=model.modelId), timeout=30)

    assert answer.sizeInBytes == await size_of(runtime, model, loaded)


async def test_unload_twice_is_fine(runtime: ModelRuntimeStub, some_model: SomeModel) -> None:
    """What is gone is gone."""
    model = some_model()
    await runtime.loadModel(model, timeout=120)

    for _ in range(2):
        assert await runtime.unloadModel(unload_of(model), timeout=180) == pb.UnloadModelResponse()


async def test_load_after_unload_loads_again(runtime: ModelRuntimeStub, some_model: SomeModel) -> None:
    """An id can be used again."""
    model = some_model()

    for _ in range(2):
        assert await size_of(runtime, model, await runtime.loadModel(model, timeout=120)) > 0
        assert await runtime.unloadModel(unload_of(model), timeout=180) == pb.UnloadModelResponse()


async def test_unload_of_an_unknown_model_is_fine(runtime: ModelRuntimeStub) -> None:
    """The adapter may have restarted; ModelMesh may unload what never was."""
    for _ in range(2):
        assert await runtime.unloadModel(pb.UnloadModelRequest(modelId="sanity-never-loaded"), timeout=30) == pb.UnloadModelResponse()


async def test_size_of_an_unloaded_model_is_not_found(runtime: ModelRuntimeStub, some_model: SomeModel) -> None:
    """An unloaded model has no size."""
    model = some_model()
    await runtime.loadModel(model, timeout=120)
    await runtime.unloadModel(unload_of(model), timeout=180)

    with pytest.raises(aio.AioRpcError) as caught:
        await runtime.modelSize(pb.ModelSizeRequest(modelId=model.modelId), timeout=30)

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
    assert model.modelId in (caught.value.details() or "")


async def test_two_models_from_the_same_place_do_not_meet(runtime: ModelRuntimeStub, some_model: SomeModel) -> None:
    """Unloading one leaves the other."""
    one, other = some_model(), some_model()
    await runtime.loadModel(one, timeout=120)
    await runtime.loadModel(other, timeout=120)

    await runtime.unloadModel(unload_of(one), timeout=180)

    assert (await runtime.modelSize(pb.ModelSizeRequest(modelId=other.modelId), timeout=30)).sizeInBytes > 0


async def test_failed_load_can_be_repeated_and_unloaded(runtime: ModelRuntimeStub, some_model: SomeModel) -> None:
    """The same failure twice, and the unload that ModelMesh sends after each."""
    model = some_model()
    model.modelPath = "sanity/there/is/no/such/model"

    for _ in range(2):
        with pytest.raises(aio.AioRpcError) as caught:
            await runtime.loadModel(model, timeout=120)
        assert caught.value.code() is not grpc.StatusCode.UNKNOWN
        assert model.modelId in (caught.value.details() or "")
        assert await runtime.unloadModel(unload_of(model), timeout=180) == pb.UnloadModelResponse()
