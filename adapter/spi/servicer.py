"""
The five calls of `mmesh.ModelRuntime`: decode, call the lifecycle, encode. No decisions of its own.

Around each call, `answered` writes its status, its metrics and one log line. Two facts about grpc.aio 1.85 shape it, each held by
a test. A `CancelledError` that leaves a call because a *child* task was cancelled gives the caller no answer until its deadline. The
text of an unmapped exception goes to the peer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import wraps
from itertools import product
from typing import Any

import structlog
from grpc import StatusCode

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb import model_runtime_pb2_grpc as rpc
from adapter.errors import UNEXPECTED, AdapterError, InvalidRequest, Superseded, UnloadUnfinished, WrongServer
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import id_problem
from adapter.settings.capacity import CapacitySettings
from adapter.spi import codec
from adapter.telemetry import metrics
from adapter.telemetry.logs import note, noting

INJECTED_METHODS = ("ModelInfer", "ModelMetadata", "ModelReady", "ModelConfig", "ModelStatistics")
"""What clients may call through ModelMesh. Never the repository, shared memory, trace or log methods: they control Triton."""
INJECTED_SERVICE = "inference.GRPCInferenceService"
MODEL_NAME_PATH = (1,)
"""In each of those requests the model's name is field 1."""
_SHOWN_ID_CHARACTERS = 300

log = structlog.stdlib.get_logger(__name__)


def answered(call: Callable[..., Awaitable[Any]]) -> Callable[..., Coroutine[Any, Any, Any]]:
    """A call that answers every failure with its status, and writes its metrics and its log line just before its answer leaves."""
    method = call.__name__

    @wraps(call)
    async def answer(self: Any, request: Any, context: Any) -> Any:
        clock = asyncio.get_running_loop().time
        began, model_id = clock(), getattr(request, "modelId", None)
        place = {"method": method} | ({"model_id": model_id[:_SHOWN_ID_CHARACTERS]} if model_id else {})

        def write(code: StatusCode, *, is_for_operators: bool = False, **failure: Any) -> None:
            """An error: an operator must act. A warning: a model or a neighbour failed."""
            seconds = clock() - began
            metrics.RPC_SECONDS.labels(method, code.name).observe(seconds)
            if failure:
                metrics.FAILURES.labels(method, failure["reason"]).inc()
            quiet = log.info if code in (StatusCode.OK, StatusCode.CANCELLED, StatusCode.ABORTED) else log.warning
            level = log.error if is_for_operators else quiet
            level("rpc", **{**notes, **place, "code": code.name, "seconds": round(seconds, 4), **failure})

        with noting() as notes, structlog.contextvars.bound_contextvars(**place):
            crash = None
            try:
                response = await call(self, request, context)
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    write(StatusCode.CANCELLED, reason="cancelled")  # the peer went, its deadline passed, or we stop
                    raise
                error: AdapterError = Superseded("a later call for the same model overtook this one")
            except AdapterError as found:
                error = found
            except Exception as found:  # noqa: BLE001 - logged with its traceback in the canonical line
                error, crash = AdapterError(UNEXPECTED), found
            else:
                write(StatusCode.OK)
                return response
            if model_id:
                error.located(model_id, None)
            code, text = codec.code_of(error, method), codec.text_of(error)
            is_for_operators = crash is not None or isinstance(error, (WrongServer, UnloadUnfinished))
            write(code, is_for_operators=is_for_operators, reason=error.reason, error=text, exc_info=crash)
            await context.abort(code, text)  # raises

    return answer


class ModelRuntime(rpc.ModelRuntimeServicer):
    """The face towards ModelMesh."""

    def __init__(self, lifecycle: RuntimeLifecycle, capacity: Callable[[], CapacitySettings], reserved_ids: frozenset[str]) -> None:
        self._lifecycle = lifecycle
        self._capacity = capacity
        self._reserved_ids = reserved_ids
        self.has_told = asyncio.Event()
        """ModelMesh has had a status."""
        for method, reason in product(("loadModel", "unloadModel"), codec.REASONS):
            metrics.FAILURES.labels(method, reason)  # from 0 on, or the first failure would be no increase
        for method in pb.DESCRIPTOR.services_by_name["ModelRuntime"].methods_by_name:
            metrics.FAILURES.labels(method, AdapterError.reason)

    @answered
    async def loadModel(self, request: pb.LoadModelRequest, context: object) -> pb.LoadModelResponse:
        """Answers when Triton serves the model."""
        loaded = await self._lifecycle.load(codec.decode(request, self._reserved_ids))
        note(size_bytes=loaded.size_bytes)
        return pb.LoadModelResponse(sizeInBytes=loaded.size_bytes, maxConcurrency=loaded.max_concurrency)

    @answered
    async def unloadModel(self, request: pb.UnloadModelRequest, context: object) -> pb.UnloadModelResponse:
        """
        Answers when the model's memory is free. An id that could never be loaded is free already.

        An error would be repeated 90 times, and then cost ModelMesh the model's space for good.
        """
        if problem := id_problem(request.modelId, self._reserved_ids):
            note(skipped=problem)
        else:
            await self._lifecycle.unload(request.modelId)
        return pb.UnloadModelResponse()

    @answered
    async def predictModelSize(self, request: pb.PredictModelSizeRequest, context: object) -> pb.PredictModelSizeResponse:
        """A request that loadModel will refuse gets the default: only loadModel's words reach the model's status."""
        try:
            size_bytes = await self._lifecycle.predict(codec.decode(request, self._reserved_ids))
        except InvalidRequest as error:
            note(defaulted=error.text)
            size_bytes = self._lifecycle.default_prediction()
        note(size_bytes=size_bytes)
        return pb.PredictModelSizeResponse(sizeInBytes=size_bytes)

    @answered
    async def modelSize(self, request: pb.ModelSizeRequest, context: object) -> pb.ModelSizeResponse:
        """Size of a loaded model."""
        return pb.ModelSizeResponse(sizeInBytes=await self._lifecycle.size_of(request.modelId))

    @answered
    async def runtimeStatus(self, request: pb.RuntimeStatusRequest, context: object) -> pb.RuntimeStatusResponse:
        """STARTING or READY, never FAILING: that would end the ModelMesh process."""
        state = await self._lifecycle.status()
        self.has_told.set()
        note(status="READY" if state.is_ready else "STARTING", **({"problem": state.problem} if state.problem else {}))
        capacity = self._capacity()
        path = pb.RuntimeStatusResponse.MethodInfo(idInjectionPath=MODEL_NAME_PATH)
        return pb.RuntimeStatusResponse(
            status=pb.RuntimeStatusResponse.READY if state.is_ready else pb.RuntimeStatusResponse.STARTING,
            capacityInBytes=capacity.capacity_bytes,
            maxLoadingConcurrency=capacity.max_loading,
            modelLoadingTimeoutMs=capacity.load_timeout_ms,
            defaultModelSizeInBytes=capacity.default_model_bytes,
            runtimeVersion=state.version or capacity.runtime_version,
            methodInfos={f"{INJECTED_SERVICE}/{method}": path for method in INJECTED_METHODS},
            limitModelConcurrency=capacity.max_concurrency != 0,
            allowAnyMethod=False,
        )
