"""
One channel to a V2 gRPC server, for inference and for questions about models. Implements `adapter.inference.Inference`.

Waits for nothing that is away: gRPC's own wait-for-ready is off, and what a health question waits for is bounded.
A cancel of a call, or the end of a generator, cancels the call in the server. Source: gRPC; shown for Triton's python backend by the tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

import grpc
import grpc.aio

from adapter.inference import Failure, InferenceFailed, InferRequest, InferResponse, ModelInfo, ServerInfo
from adapter.telemetry.redaction import remember
from adapter.triton.inference.failures import failure_of
from adapter.triton.inference.messages import WANTS_EMPTY_FINAL, info_of, json_of, request_of, response_of
from adapter.triton.stubs import service_pb2, service_pb2_grpc

HEALTH_SECONDS = 1.0
QUESTION_SECONDS = 10.0
"""For calls that never wait for a model."""
_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 500),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)
_STREAM = (("triton_grpc_error", "true"),)
"""Errors of a stream become its status, not a text in an answer. Source: Triton's `docs/protocol/extension_generate`, gRPC errors."""


class TritonInference:
    """As `adapter.inference.Inference`."""

    def __init__(self, target: str, headers: Sequence[tuple[str, str]] = (), credentials: grpc.ChannelCredentials | None = None) -> None:
        """
        Args:
            target: in gRPC's form.
            headers: of every call; their values are secrets.
            credentials: for TLS.
        """
        self._headers = tuple(headers)
        for _, value in self._headers:
            remember(value, lasts=True)
        if credentials is None:
            self._channel = grpc.aio.insecure_channel(target, options=_OPTIONS)
        else:
            self._channel = grpc.aio.secure_channel(target, credentials, options=_OPTIONS)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def close(self) -> None:
        """End the channel and whatever calls run on it."""
        await self._channel.close()

    async def infer(self, request: InferRequest, *, headers: Mapping[str, str] | None = None) -> InferResponse:
        """As `Inference`."""
        return response_of(await self._call(self._stub.ModelInfer, request_of(request), None, tuple((headers or {}).items())))

    async def stream(self, request: InferRequest) -> AsyncGenerator[InferResponse, None]:
        """As `Inference`."""
        message = request_of(request)
        message.parameters[WANTS_EMPTY_FINAL].bool_param = True

        async def sent() -> AsyncGenerator[Any, None]:
            yield message
            await ended.wait()  # Triton ends a stream whose sender has ended before its answers have come

        ended = asyncio.Event()
        call = self._stub.ModelStreamInfer(sent(), metadata=(*self._headers, *_STREAM))
        try:
            async for answer in call:
                if answer.error_message:
                    raise InferenceFailed(Failure.INTERNAL, answer.error_message)
                response = response_of(answer.infer_response, is_stream=True)
                yield response
                if response.is_final:
                    return
        except grpc.aio.AioRpcError as error:
            raise failure_of(error.code(), error.details() or "") from error
        finally:
            ended.set()
            call.cancel()
        raise InferenceFailed(Failure.INTERNAL, "the stream ended before its last answer")

    async def is_live(self) -> bool:
        """As `Inference`."""
        return await self._is_well(self._stub.ServerLive, service_pb2.ServerLiveRequest(), "live")

    async def is_ready(self) -> bool:
        """As `Inference`."""
        return await self._is_well(self._stub.ServerReady, service_pb2.ServerReadyRequest(), "ready")

    async def is_model_ready(self, model: str, version: str = "") -> bool:
        """As `Inference`."""
        request = service_pb2.ModelReadyRequest(name=model, version=version)
        return bool((await self._call(self._stub.ModelReady, request, QUESTION_SECONDS)).ready)

    async def server_info(self) -> ServerInfo:
        """As `Inference`."""
        reply = await self._call(self._stub.ServerMetadata, service_pb2.ServerMetadataRequest(), QUESTION_SECONDS)
        return ServerInfo(reply.name, reply.version, tuple(reply.extensions))

    async def model_info(self, model: str, version: str = "") -> ModelInfo:
        """As `Inference`."""
        metadata, config = await asyncio.gather(
            self._call(self._stub.ModelMetadata, service_pb2.ModelMetadataRequest(name=model, version=version), QUESTION_SECONDS),
            self._config(model, version),
        )
        return info_of(metadata, config)

    async def model_config(self, model: str, version: str = "") -> Mapping[str, Any]:
        """As `Inference`."""
        return json_of(await self._config(model, version))

    async def model_statistics(self, model: str = "", version: str = "") -> Mapping[str, Any]:
        """As `Inference`."""
        request = service_pb2.ModelStatisticsRequest(name=model, version=version)
        return json_of(await self._call(self._stub.ModelStatistics, request, QUESTION_SECONDS))

    async def _config(self, model: str, version: str) -> Any:
        request = service_pb2.ModelConfigRequest(name=model, version=version)
        return (await self._call(self._stub.ModelConfig, request, QUESTION_SECONDS)).config

    async def _is_well(self, method: Any, request: Any, field: str) -> bool:
        try:
            return bool(getattr(await self._call(method, request, HEALTH_SECONDS), field))
        except InferenceFailed:
            return False

    async def _call(self, method: Any, request: Any, timeout_seconds: float | None, headers: tuple[tuple[str, str], ...] = ()) -> Any:
        try:
            reply = await method(request, timeout=timeout_seconds, metadata=(*self._headers, *headers))
        except grpc.aio.AioRpcError as error:
            raise failure_of(error.code(), error.details() or "") from error
        if reply is None:  # grpc.aio's answer when the reply cannot be parsed
            raise InferenceFailed(Failure.INTERNAL, "Triton's answer cannot be parsed")
        return reply
