"""
ModelMesh's side of control calls and inference, for tests and the demo: the SPI towards the adapter, V2 inference towards Triton.

Like ModelMesh it puts the model id where the request names its model, waits without a deadline for
loads and unloads, and asks for the runtime's status until it is READY.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import grpc
import numpy as np
from tritonclient.grpc import service_pb2 as v2
from tritonclient.grpc import service_pb2_grpc as v2_rpc

from adapter._pb import model_runtime_pb2 as spi
from adapter._pb import model_runtime_pb2_grpc as spi_rpc
from tests.builders import load_request, predict_request
from tests.real.polls import until

DATATYPES: dict[np.dtype[Any], str] = {
    np.dtype(np.float32): "FP32", np.dtype(np.float64): "FP64", np.dtype(np.int32): "INT32", np.dtype(np.int64): "INT64",
    np.dtype(np.uint8): "UINT8", np.dtype(np.bool_): "BOOL",
}  # fmt: skip
LONG_ENOUGH_SECONDS = 120
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.enable_http_proxy", 0), ("grpc.initial_reconnect_backoff_ms", 50)]


class Mesh:
    """Two channels and the words for them."""

    def __init__(self, adapter_target: str, triton_target: str) -> None:
        self._channels = [grpc.insecure_channel(target, options=OPTIONS) for target in (adapter_target, triton_target)]
        self.runtime = spi_rpc.ModelRuntimeStub(self._channels[0])
        self.triton = v2_rpc.GRPCInferenceServiceStub(self._channels[1])

    def __enter__(self) -> Mesh:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for channel in self._channels:
            channel.close()

    def start(self, seconds: float = 60) -> spi.RuntimeStatusResponse:
        """Ask for the runtime's status until READY: this purges. Raises TimeoutError."""

        def ready() -> spi.RuntimeStatusResponse | None:
            state = self.status()
            return state if state.status == spi.RuntimeStatusResponse.READY else None

        return until(ready, "runtimeStatus READY", seconds)

    def status(self) -> spi.RuntimeStatusResponse:
        """Ask for the runtime's status once: this purges too."""
        return self.runtime.runtimeStatus(spi.RuntimeStatusRequest(), timeout=LONG_ENOUGH_SECONDS, wait_for_ready=True)

    def load(self, model_id: str, model_type: str, path: str, **key: Any) -> spi.LoadModelResponse:
        """Load, and wait for the answer. Further entries of the modelKey as keywords."""
        return self.runtime.loadModel(load_request(model_id, model_type, path, **key), timeout=LONG_ENOUGH_SECONDS)

    def start_load(self, model_id: str, model_type: str, path: str, **key: Any) -> Any:
        """Begin a load; returns its future when Triton's index says that the load runs. Raises what the load raised before."""
        load = self.runtime.loadModel.future(load_request(model_id, model_type, path, **key), timeout=LONG_ENOUGH_SECONDS)
        until(lambda: load.done() or self.index().get(model_id) == "LOADING", f"Triton loads {model_id}")
        if load.done():
            load.result()
        return load

    def predict(self, model_id: str, model_type: str, path: str, **key: Any) -> int:
        """Predicted size in bytes."""
        request = predict_request(model_id, model_type, path, **key)
        return self.runtime.predictModelSize(request, timeout=LONG_ENOUGH_SECONDS).sizeInBytes

    def unload(self, model_id: str) -> None:
        """Unload, and wait for the answer."""
        self.runtime.unloadModel(spi.UnloadModelRequest(modelId=model_id), timeout=LONG_ENOUGH_SECONDS)

    def infer_request(self, model_id: str, inputs: Mapping[str, np.ndarray[Any, Any]]) -> v2.ModelInferRequest:
        """A V2 request; arrays of objects are texts."""
        request = v2.ModelInferRequest(model_name=model_id)
        for name, array in inputs.items():
            request.inputs.add(name=name, datatype=DATATYPES.get(array.dtype, "BYTES"), shape=list(array.shape))
            request.raw_input_contents.append(_raw(array))
        return request

    def infer(self, model_id: str, inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
        """One inference, as ModelMesh forwards it."""
        answer = self.triton.ModelInfer(self.infer_request(model_id, inputs), timeout=LONG_ENOUGH_SECONDS)
        return arrays_of(answer)

    def serves(self, model_id: str) -> bool:
        """Whether Triton has it in memory; the index does not list a model whose directory is gone."""
        return bool(self.triton.ModelReady(v2.ModelReadyRequest(name=model_id), timeout=LONG_ENOUGH_SECONDS).ready)

    def index(self) -> dict[str, str]:
        """Model id → Triton's state, of models that hold memory or have a reason not to."""
        rows = self.triton.RepositoryIndex(v2.RepositoryIndexRequest(), timeout=LONG_ENOUGH_SECONDS).models
        return {row.name: row.state for row in rows}


def arrays_of(answer: v2.ModelInferResponse) -> dict[str, np.ndarray[Any, Any]]:
    """The outputs of a V2 answer."""
    dtypes = {name: dtype for dtype, name in DATATYPES.items()}
    return {
        output.name: np.frombuffer(raw, dtypes[output.datatype]).reshape(list(output.shape))
        for output, raw in zip(answer.outputs, answer.raw_output_contents, strict=True)
    }


def _raw(array: np.ndarray[Any, Any]) -> bytes:
    if array.dtype != np.object_:
        return array.tobytes()
    texts = [str(item).encode() for item in array.ravel()]
    return b"".join(struct.pack("<I", len(text)) + text for text in texts)
