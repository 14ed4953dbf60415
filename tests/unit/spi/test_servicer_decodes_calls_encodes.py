"""Each of the five calls asks the lifecycle once, and says what it said."""

from types import SimpleNamespace
from typing import Any

import pytest

from adapter._pb import model_runtime_pb2 as pb
from adapter.errors import InvalidRequest, ModelNotLoaded
from adapter.model import RESERVED_IDS, LoadedModel, ModelSpec, RuntimeState
from adapter.spi.servicer import ModelRuntime, numeric_version
from tests.fakes.lifecycle import DEFAULT_BYTES, MODEL_PATH, SIZE_BYTES, FakeLifecycle
from tests.unit.spi.serving import capacity

NO_CONTEXT: Any = SimpleNamespace()
Status = pb.RuntimeStatusResponse


class StatusLifecycle(FakeLifecycle):
    def __init__(self, state: RuntimeState) -> None:
        super().__init__()
        self.state = state

    async def status(self) -> RuntimeState:
        return self.state


def runtime(lifecycle: FakeLifecycle, **variables: str) -> ModelRuntime:
    return ModelRuntime(lifecycle=lifecycle, capacity=capacity(**variables), reserved_ids=RESERVED_IDS | {"cache"})


async def test_load_passes_the_decoded_model_and_answers_size_and_concurrency() -> None:
    """Nothing is added or lost."""

    class Lifecycle(FakeLifecycle):
        async def load(self, spec: ModelSpec) -> LoadedModel:
            await super().load(spec)
            return LoadedModel(size_bytes=123_456, max_concurrency=7)

    lifecycle = Lifecycle()
    request = pb.LoadModelRequest(modelId="m1", modelType="mt:onnx:1", modelPath=MODEL_PATH, modelKey='{"bucket":"b"}')

    answer = await runtime(lifecycle).loadModel(request, NO_CONTEXT)

    assert answer == pb.LoadModelResponse(sizeInBytes=123_456, maxConcurrency=7)
    assert lifecycle.loaded == {"m1": ModelSpec(model_id="m1", model_type="onnx", path=MODEL_PATH, bucket="b")}


async def test_load_of_a_bad_request_does_not_reach_the_lifecycle() -> None:
    """Refused by the codec."""
    lifecycle = FakeLifecycle()

    with pytest.raises(InvalidRequest, match="modelKey"):
        await runtime(lifecycle).loadModel(pb.LoadModelRequest(modelId="m1", modelPath=MODEL_PATH, modelKey="{"), NO_CONTEXT)

    assert lifecycle.loaded == {}


async def test_the_name_of_the_cache_folder_is_no_model_id() -> None:
    """Where CACHE_DIR names another folder under the root."""
    with pytest.raises(InvalidRequest, match="'cache' is reserved"):
        await runtime(FakeLifecycle()).loadModel(pb.LoadModelRequest(modelId="cache", modelPath=MODEL_PATH), NO_CONTEXT)


@pytest.mark.parametrize("model_id", ["", ".", "..", "/", "a/b", "a\0b", "x" * 256, "_triton_models", "_adapter", "cache"])
async def test_unload_of_an_impossible_id_asks_nobody(model_id: str) -> None:
    """It touches nothing: such an id once removed the whole model folder."""
    lifecycle = FakeLifecycle()

    assert await runtime(lifecycle).unloadModel(pb.UnloadModelRequest(modelId=model_id), NO_CONTEXT) == pb.UnloadModelResponse()
    assert lifecycle.unloads == []


async def test_unload_of_an_unknown_id_is_passed_on() -> None:
    """Triton may know it."""
    lifecycle = FakeLifecycle()

    await runtime(lifecycle).unloadModel(pb.UnloadModelRequest(modelId="unknown"), NO_CONTEXT)

    assert lifecycle.unloads == ["unknown"]


@pytest.mark.parametrize(
    ("model_id", "key", "size"),
    [("m1", "{}", SIZE_BYTES), ("m1", "{", DEFAULT_BYTES), ("a/b", "{}", DEFAULT_BYTES), ("m1", '{"bucket":1}', DEFAULT_BYTES)],
)
async def test_prediction_of_a_bad_request_is_the_default(model_id: str, key: str, size: int) -> None:
    """Never an error: it is for loadModel to say what is wrong."""
    request = pb.PredictModelSizeRequest(modelId=model_id, modelPath=MODEL_PATH, modelKey=key)

    assert await runtime(FakeLifecycle()).predictModelSize(request, NO_CONTEXT) == pb.PredictModelSizeResponse(sizeInBytes=size)


async def test_model_size_is_the_lifecycles() -> None:
    """Or its error."""
    lifecycle = FakeLifecycle()
    await lifecycle.load(ModelSpec(model_id="m1", model_type="", path=MODEL_PATH))

    answer = await runtime(lifecycle).modelSize(pb.ModelSizeRequest(modelId="m1"), NO_CONTEXT)

    assert answer.sizeInBytes == SIZE_BYTES
    with pytest.raises(ModelNotLoaded):
        await runtime(lifecycle).modelSize(pb.ModelSizeRequest(modelId="m2"), NO_CONTEXT)


@pytest.mark.parametrize(("is_ready", "status"), [(False, Status.STARTING), (True, Status.READY)])
async def test_status_carries_every_field_also_while_starting(is_ready: bool, status: Any) -> None:
    """ModelMesh reads them from whichever answer is READY; people read them from any."""
    lifecycle = StatusLifecycle(RuntimeState(is_ready=is_ready, version="2.51.0", problem=None if is_ready else "purging"))
    served = runtime(lifecycle, LOADING_CONCURRENCY="2", LOADTIME_TIMEOUT="90000", LIMIT_PER_MODEL_CONCURRENCY="4", MEM_BUFFER_BYTES="1Gi")

    answer = await served.runtimeStatus(pb.RuntimeStatusRequest(), NO_CONTEXT)

    path = Status.MethodInfo(idInjectionPath=[1])
    methods = ["ModelInfer", "ModelMetadata", "ModelReady", "ModelConfig", "ModelStatistics"]
    assert answer == pb.RuntimeStatusResponse(
        status=status,
        capacityInBytes=2**30,
        maxLoadingConcurrency=2,
        modelLoadingTimeoutMs=90_000,
        defaultModelSizeInBytes=1_000_000,
        runtimeVersion="2.51.0",
        numericRuntimeVersion=2_051_000,
        methodInfos={f"inference.GRPCInferenceService/{method}": path for method in methods},
        limitModelConcurrency=True,
        allowAnyMethod=False,
    )


async def test_status_without_limit_and_version_uses_the_settings() -> None:
    """0 means no limit; an unknown Triton has the version of the settings."""
    lifecycle = StatusLifecycle(RuntimeState(is_ready=False, version="", problem="Triton does not answer"))

    answer = await runtime(lifecycle, RUNTIME_VERSION="23.04-py3").runtimeStatus(pb.RuntimeStatusRequest(), NO_CONTEXT)

    assert not answer.limitModelConcurrency
    assert (answer.runtimeVersion, answer.numericRuntimeVersion) == ("23.04-py3", 23_004_000)


@pytest.mark.parametrize(
    ("version", "number"),
    [
        ("2.51.0", 2_051_000),
        ("2.51", 2_051_000),
        ("v1", 1_000_000),
        ("23.04-py3", 23_004_000),
        ("2.73.0dev", 2_073_000),
        ("5000/triton:23.04", 0),
        ("23.04-py3@sha256:abc", 23_004_000),
        ("latest", 0),
        ("", 0),
        ("9999999999", 0),
        ("2.5000.5000", 2_999_999),
        ("999999.0.0", 999_999_000_000),
    ],
)
def test_number_of_a_version_orders_versions(version: str, number: int) -> None:
    """What is no version is 0: the variable may hold a piece of an image reference."""
    assert numeric_version(version) == number
