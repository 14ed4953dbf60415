"""ModelMesh's two channels: the SPI towards the adapter, and raw V2 calls towards Triton."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from tritonclient.grpc import service_pb2 as v2

from adapter._pb import model_runtime_pb2 as spi
from adapter._pb import model_runtime_pb2_grpc as spi_rpc

INDEX_SECONDS = 30.0
CONTROL_OPTIONS = [("grpc.enable_http_proxy", 0), ("grpc.initial_reconnect_backoff_ms", 50), ("grpc.max_reconnect_backoff_ms", 1000)]
SERVING_OPTIONS = [*CONTROL_OPTIONS, ("grpc.max_receive_message_length", 16 << 20)]
SERVICE = "/inference.GRPCInferenceService/"
HOLDING = frozenset({"LOADING", "READY", "UNLOADING"})
"""States of the index in which a model holds memory."""


class CallError(Exception):
    """A call has failed, with a gRPC status."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code = code
        self.text = text


@dataclass(frozen=True)
class Model:
    """A model as it was registered."""

    model_id: str
    model_type: str
    path: str
    key: str
    """`modelKey`: JSON, passed on as it is."""


class GrpcRuntime:
    """What ModelMesh asks; `async with`. Every call raises CallError."""

    def __init__(self, adapter: str, triton: str) -> None:
        self._targets = (adapter, triton)
        self._channels: list[grpc.aio.Channel] = []
        self._spi: Any = None

    async def reconnect(self) -> None:
        """New connections: the process that had the old ones has died."""
        await self.close()
        options = (CONTROL_OPTIONS, SERVING_OPTIONS)
        local = ("grpc.use_local_subchannel_pool", 1)
        self._channels = [
            grpc.aio.insecure_channel(target, options=[*option, local]) for target, option in zip(self._targets, options, strict=True)
        ]
        self._spi = spi_rpc.ModelRuntimeStub(self._channels[0])

    async def close(self) -> None:
        """End all calls."""
        channels, self._channels = self._channels, []
        for channel in channels:
            await channel.close()

    async def __aenter__(self) -> GrpcRuntime:
        await self.reconnect()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def status(self, seconds: float) -> Any:
        """The `RuntimeStatusResponse`; a call has this deadline."""
        return await _answer(self._spi.runtimeStatus(spi.RuntimeStatusRequest(), timeout=seconds))

    async def predict(self, model: Model, seconds: float) -> int:
        """Predicted bytes."""
        request = spi.PredictModelSizeRequest(modelId=model.model_id, modelType=model.model_type, modelPath=model.path, modelKey=model.key)
        return int((await _answer(self._spi.predictModelSize(request, timeout=seconds))).sizeInBytes)

    async def load(self, model: Model) -> int:
        """Bytes, or 0 for "ask for its size". No deadline: cancelling the call is the only end that we bring about."""
        request = spi.LoadModelRequest(modelId=model.model_id, modelType=model.model_type, modelPath=model.path, modelKey=model.key)
        return int((await _answer(self._spi.loadModel(request))).sizeInBytes)

    async def size(self, model_id: str, seconds: float) -> int:
        """Bytes of a loaded model."""
        return int((await _answer(self._spi.modelSize(spi.ModelSizeRequest(modelId=model_id), timeout=seconds))).sizeInBytes)

    async def unload(self, model_id: str) -> None:
        """No deadline, never cancelled."""
        await _answer(self._spi.unloadModel(spi.UnloadModelRequest(modelId=model_id)))

    async def call(self, method: str, request: bytes, seconds: float) -> bytes:
        """A V2 call, as bytes."""
        call: Any = self._channels[1].unary_unary(f"{SERVICE}{method}")
        answer: bytes = await _answer(call(request, timeout=seconds))
        return answer

    async def index(self) -> dict[str, str]:
        """Model → state, of every model that Triton's index shows to hold memory."""
        answer = await self.call("RepositoryIndex", v2.RepositoryIndexRequest().SerializeToString(), INDEX_SECONDS)
        rows = v2.RepositoryIndexResponse.FromString(answer).models
        return {row.name: row.state for row in rows if row.state in HOLDING}


async def _answer(call: Any) -> Any:
    try:
        return await call
    except grpc.aio.AioRpcError as error:
        raise CallError(error.code().name, error.details() or "") from None
    except grpc.aio.UsageError as error:  # the channel was closed before it
        raise CallError("UNAVAILABLE", str(error)) from None
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise CallError("UNAVAILABLE", "the channel was closed under the call") from None
