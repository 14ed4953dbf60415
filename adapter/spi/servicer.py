"""
The five calls of `mmesh.ModelRuntime`: decode, call the lifecycle, encode. No decisions of its own.

Failures leave as `AdapterError`; the interceptor makes a status of them.
"""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb import model_runtime_pb2_grpc as rpc
from adapter.errors import InvalidRequest
from adapter.model import id_problem
from adapter.serving import Lifecycle
from adapter.settings import CapacitySettings
from adapter.spi import codec
from adapter.telemetry.logs import note

if TYPE_CHECKING:
    from adapter._pb.model_runtime_pb2_grpc import _ServicerContext

INJECTED_METHODS = ("ModelInfer", "ModelMetadata", "ModelReady", "ModelConfig", "ModelStatistics")
"""What clients may call through ModelMesh. Never the repository, shared memory, trace or log methods: they control Triton."""
INJECTED_SERVICE = "inference.GRPCInferenceService"
MODEL_NAME_PATH = (1,)
"""In each of those requests the model's name is field 1."""

_VERSION = re.compile(r"v?(\d{1,6})(?:\.(\d{1,6}))?(?:\.(\d{1,6}))?(?:[-+.].*)?", re.DOTALL)


class ModelRuntime(rpc.ModelRuntimeServicer):
    """The face towards ModelMesh."""

    def __init__(self, *, lifecycle: Lifecycle, capacity: CapacitySettings, reserved_ids: frozenset[str]) -> None:
        self._lifecycle = lifecycle
        self._capacity = capacity
        self._reserved_ids = reserved_ids
        self.has_told = asyncio.Event()
        """ModelMesh has had a status."""

    async def loadModel(self, request: pb.LoadModelRequest, context: _ServicerContext) -> pb.LoadModelResponse:
        """Answers when Triton serves the model."""
        loaded = await self._lifecycle.load(codec.decode(request, self._reserved_ids))
        note(size_bytes=loaded.size_bytes)
        return pb.LoadModelResponse(sizeInBytes=loaded.size_bytes, maxConcurrency=loaded.max_concurrency)

    async def unloadModel(self, request: pb.UnloadModelRequest, context: _ServicerContext) -> pb.UnloadModelResponse:
        """
        Answers when the model's memory is free. An id that could never be loaded is free already.

        An error would be repeated 90 times, and then cost ModelMesh the model's space for good.
        """
        if problem := id_problem(request.modelId, self._reserved_ids):
            note(skipped=problem)
        else:
            await self._lifecycle.unload(request.modelId)
        return pb.UnloadModelResponse()

    async def predictModelSize(self, request: pb.PredictModelSizeRequest, context: _ServicerContext) -> pb.PredictModelSizeResponse:
        """A request that loadModel will refuse gets the default: only loadModel's words reach the model's status."""
        try:
            size_bytes = await self._lifecycle.predict(codec.decode(request, self._reserved_ids))
        except InvalidRequest as error:
            note(defaulted=error.text)
            size_bytes = self._lifecycle.default_prediction()
        note(size_bytes=size_bytes)
        return pb.PredictModelSizeResponse(sizeInBytes=size_bytes)

    async def modelSize(self, request: pb.ModelSizeRequest, context: _ServicerContext) -> pb.ModelSizeResponse:
        """Size of a loaded model."""
        return pb.ModelSizeResponse(sizeInBytes=await self._lifecycle.size_of(request.modelId))

    async def runtimeStatus(self, request: pb.RuntimeStatusRequest, context: _ServicerContext) -> pb.RuntimeStatusResponse:
        """STARTING or READY, never FAILING: that would end the ModelMesh process."""
        state = await self._lifecycle.status()
        self.has_told.set()
        note(status="READY" if state.is_ready else "STARTING", **({"problem": state.problem} if state.problem else {}))
        capacity = self._capacity
        version = state.version or capacity.runtime_version
        path = pb.RuntimeStatusResponse.MethodInfo(idInjectionPath=MODEL_NAME_PATH)
        return pb.RuntimeStatusResponse(
            status=pb.RuntimeStatusResponse.READY if state.is_ready else pb.RuntimeStatusResponse.STARTING,
            capacityInBytes=capacity.capacity_bytes,
            maxLoadingConcurrency=capacity.max_loading,
            modelLoadingTimeoutMs=capacity.load_timeout_ms,
            defaultModelSizeInBytes=capacity.default_model_bytes,
            runtimeVersion=version,
            numericRuntimeVersion=numeric_version(version),
            methodInfos={f"{INJECTED_SERVICE}/{method}": path for method in INJECTED_METHODS},
            limitModelConcurrency=capacity.max_concurrency > 0,
            allowAnyMethod=False,
        )


def numeric_version(version: str) -> int:
    """`2.51.0` → 2051000: orders versions; 0 for a text that is not a version, as a runtime version made of an image reference."""
    match = _VERSION.fullmatch(version.strip())
    if match is None:
        return 0
    major, minor, patch = (min(int(part or 0), 999_999) for part in match.groups())
    return major * 1_000_000 + min(minor, 999) * 1_000 + min(patch, 999)
