"""
Calls of `mmesh.ModelRuntime`, as ModelMesh makes them: for the verbs `load` and `unload`.

The runtime's status is never asked for: that removes every model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import grpc

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb import model_runtime_pb2_grpc as rpc
from adapter.spi.probe import OPTIONS
from adapter.units import Endpoint

LOOK_SECONDS = 0.5
SIZE_SECONDS = 30.0
"""As ModelMesh. Source: modelmesh `SidecarModelMesh.java` 119."""


class CallFailedError(Exception):
    """Code and text of the answer, in one line."""


def load(endpoint: Endpoint, model_id: str, path: str, *, type_name: str, key: Mapping[str, Any], seconds: float) -> Iterator[int | None]:
    """
    Load a model. Blocks.

    Args:
        endpoint: of the adapter.
        model_id: of the model in Triton.
        path: in the storage.
        type_name: empty: what the model's config.pbtxt says.
        key: more fields of modelKey.
        seconds: the longest time.

    Yields:
        None every `LOOK_SECONDS`, and the model's bytes at the end.

    Raises:
        CallFailedError
    """
    key = {**key, "model_type": {"name": type_name}}
    request = pb.LoadModelRequest(modelId=model_id, modelType=f"mt:{type_name}", modelPath=path, modelKey=json.dumps(key))
    size_bytes = None
    with _stub(endpoint) as stub:
        call = stub.loadModel.future(request, timeout=seconds, wait_for_ready=True)
        while size_bytes is None:
            try:
                size_bytes = call.result(LOOK_SECONDS).sizeInBytes
            except grpc.FutureTimeoutError:
                yield None
        if not size_bytes:  # it is measured now
            size_bytes = stub.modelSize(pb.ModelSizeRequest(modelId=model_id), timeout=SIZE_SECONDS).sizeInBytes
    yield size_bytes


def unload(endpoint: Endpoint, model_id: str, *, seconds: float) -> None:
    """Unload a model; return when its memory is free. Blocks. Raises CallFailedError."""
    with _stub(endpoint) as stub:
        stub.unloadModel(pb.UnloadModelRequest(modelId=model_id), timeout=seconds)


@contextmanager
def _stub(endpoint: Endpoint) -> Iterator[Any]:
    try:
        with grpc.insecure_channel(endpoint.target, OPTIONS) as channel:
            yield rpc.ModelRuntimeStub(channel)
    except grpc.RpcError as error:
        raise CallFailedError(f"{error.code().name}: {' '.join((error.details() or '').split())}") from None
