"""
One channel to a V2 gRPC server, Triton or ModelMesh, for inference and for questions about models.

What ends a wait: a server that is away refuses at once, or after one attempt to connect (1 s); questions have a deadline; an
inference has none, and ends with its answer, its connection, or its caller. A cancel of a call, or the end of a generator, cancels the
call in the server soon (`leaving`); the caller does not wait for that. No call waits behind another: they share a connection alone.

Triton's header `triton_grpc_error`, by which the errors of a stream come as gRPC's status, is not sent: Triton 2.51 dies of it when
a model sends an error and then ends its stream, as models are told to (ModelStreamInfer; shown by the tests). So such an error has
words and no code, and the words decide (`messages`).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Coroutine, Iterator, Sequence
from contextlib import aclosing, contextmanager, suppress
from typing import Any

import grpc
import grpc.aio

from adapter.inference import FINAL, Failure, InferenceFailed, ModelInfo, is_final
from adapter.serving import KnownModel
from adapter.stubs import model_config_pb2, service_pb2, service_pb2_grpc
from adapter.telemetry.redaction import remember
from adapter.triton.inference import messages
from adapter.triton.inference.channels import Tls, channel_to
from adapter.triton.inference.leaving import begun, leave, leave_stream

HEALTH_SECONDS = 0.9
"""A caller has an answer within a second."""
QUESTION_SECONDS = 10.0
"""For calls that never wait for a model."""
KEPT_INFOS = 1024
NOT_ONE = "generate expects model to produce exactly 1 response, use generate_stream for a model that produces any other number"
"""Triton's own words. Source: its `http_server.cc`."""
HEADER = "mm-vmodel-id"
"""Of a call to ModelMesh: the model that it is about. Source: ModelMesh's `GrpcSupport.java`; modelmesh-serving's `cluster_config.go`."""
BINARY_HEADER = f"{HEADER}-bin"
_VISIBLE = re.compile(r"[!-~]+")
_AWAY = frozenset({Failure.UNAVAILABLE, Failure.TIMEOUT})
Metadata = tuple[tuple[str, str | bytes], ...]


class TritonInference:
    """
    A V2 gRPC server. Made where an event loop runs.

    Every call raises InferenceFailed; a call that is cancelled is cancelled in the server, too. None of them waits for a server that
    is away: it fails with UNAVAILABLE at once, or within the connection's first attempt.
    """

    _question_seconds: float | None = QUESTION_SECONDS
    _is_well_if_it_refuses = False

    def __init__(
        self, target: str, headers: Sequence[tuple[str, str]] = (), *, tls: Tls | None = None, max_message_bytes: int = -1
    ) -> None:
        """
        Args:
            target: in gRPC's form.
            headers: of every call; their values are secrets.
            tls: None for none.
            max_message_bytes: of a request and of an answer; -1 for no limit. Above it a call fails with INVALID.
        """
        self._headers: Metadata = tuple(headers)
        for _, value in headers:
            remember(value, lasts=True)
        self._channel = channel_to(target, tls, max_message_bytes)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)
        self._infer: Any = self._channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            response_deserializer=service_pb2.ModelInferResponse.FromString,
        )
        self._left: set[asyncio.Task[Any]] = set()
        self._infos: dict[tuple[str, str, str | None], ModelInfo] = {}

    async def close(self) -> None:
        """End the channel and whatever calls run on it; those that were left are let go first."""
        await asyncio.gather(*self._left, return_exceptions=True)
        await self._channel.close()

    def _leave(self, leaving: Coroutine[Any, Any, None]) -> None:
        """Of a call whose caller has gone; it keeps one answer at most, for some seconds."""
        task = begun(leaving)
        self._left.add(task)
        task.add_done_callback(self._left.discard)

    async def infer(self, request: Any, wire: bytes | None = None) -> Any:
        """The ModelInferResponse to a ModelInferRequest, with raw contents. It is final. `wire`: the request as bytes, where they exist."""
        call = self._infer(wire or request.SerializeToString(), metadata=self._about(request.model_name))
        answer = begun(_answer_of(call, request.id))
        try:
            response = messages.completed(await asyncio.shield(answer))
            response.parameters[FINAL].bool_param = True
            return response
        finally:
            if not answer.done():
                self._leave(leave(call, answer))

    async def one(self, request: Any, wire: bytes | None = None) -> Any:
        """As `infer`; a decoupled model is asked by a stream. INVALID: it gave no answer, or more than one, and the stream is cancelled."""
        try:
            return await self.infer(request, wire)
        except InferenceFailed as failed:
            if failed.failure is not Failure.UNSUPPORTED or "decoupled" not in failed.text:
                raise
        found: list[Any] = []
        whole = service_pb2.ModelInferRequest.FromString(wire) if wire else request
        async with aclosing(self.stream(whole)) as answers:
            async for answer in answers:
                if answer.outputs or not is_final(answer):
                    found.append(answer)
                if len(found) > 1:
                    break
        if len(found) != 1:
            raise InferenceFailed(Failure.INVALID, NOT_ONE)
        return found[0]

    async def stream(self, request: Any) -> AsyncGenerator[Any, None]:
        """
        All answers, each as soon as it is there (ModelStreamInfer, one stream for one request).

        The last one is final; the request is changed to ask for such a one. To stop early, close the generator
        (`contextlib.aclosing`), which cancels the call.
        """
        request.parameters[messages.WANTS_EMPTY_FINAL].bool_param = True
        call = self._stub.ModelStreamInfer(metadata=self._about(request.model_name))
        pending = begun(_next_of(call, request.id, request))
        try:
            while True:
                answer = await asyncio.shield(pending)
                if answer.error_message:
                    raise messages.failure_in_stream(answer.error_message, not messages.is_refusal(answer), request.id)
                response = messages.completed(answer.infer_response)
                yield response
                if is_final(response):
                    return
                pending = begun(_next_of(call, request.id))
        finally:
            if not call.done():
                self._leave(leave_stream(call, pending))

    async def is_live(self) -> bool:
        """ServerLive. False also when the server is away, or has not answered within a second."""
        return await self._is_well(self._stub.ServerLive, service_pb2.ServerLiveRequest(), "live")

    async def is_ready(self) -> bool:
        """ServerReady, likewise."""
        return await self._is_well(self._stub.ServerReady, service_pb2.ServerReadyRequest(), "ready")

    async def is_model_ready(self, model: str, version: str = "") -> bool:
        """ModelReady. False also for a model that Triton does not know; ModelMesh raises NOT_FOUND for one that it does not know."""
        request = service_pb2.ModelReadyRequest(name=model, version=version)
        return bool((await self._ask(self._stub.ModelReady, request, model)).ready)

    async def server_info(self) -> Any:
        """ServerMetadataResponse."""
        return await self._ask(self._stub.ServerMetadata, service_pb2.ServerMetadataRequest())

    async def model_info(self, model: KnownModel) -> ModelInfo:
        """ModelMetadata and ModelConfig in one; as long as the adapter has placed the model, it is asked once."""
        key = name, version, placed = model.model_id, model.version, model.placed
        if placed is not None and key in self._infos:
            return self._infos[key]
        info = ModelInfo(*await asyncio.gather(self.model_metadata(name, version), self._config_for_asking(name, version)))
        if placed is not None:
            self._infos[key] = info
            if len(self._infos) > KEPT_INFOS:
                del self._infos[next(iter(self._infos))]
        return info

    async def model_metadata(self, model: str, version: str = "") -> Any:
        """ModelMetadataResponse."""
        return await self._ask(self._stub.ModelMetadata, service_pb2.ModelMetadataRequest(name=model, version=version), model)

    async def model_config(self, model: str, version: str = "") -> Any:
        """ModelConfig."""
        return (await self._ask(self._stub.ModelConfig, service_pb2.ModelConfigRequest(name=model, version=version), model)).config

    async def model_statistics(self, model: str = "", version: str = "") -> Any:
        """ModelStatisticsResponse."""
        return await self._ask(self._stub.ModelStatistics, service_pb2.ModelStatisticsRequest(name=model, version=version), model)

    def _about(self, model: str) -> Metadata:
        """Headers of a call about a model."""
        return self._headers

    async def _config_for_asking(self, model: str, version: str) -> Any:
        """What of the config decides how the model is asked. A runtime of ModelMesh's that is no Triton has no such call."""
        try:
            return await self.model_config(model, version)
        except InferenceFailed as failed:
            if failed.failure is not Failure.UNSUPPORTED:
                raise
            return model_config_pb2.ModelConfig()

    async def _is_well(self, method: Any, request: Any, field: str) -> bool:
        try:
            return bool(getattr(await _answer_of(method(request, timeout=HEALTH_SECONDS, metadata=self._headers)), field))
        except InferenceFailed as failed:
            return self._is_well_if_it_refuses and failed.failure not in _AWAY

    async def _ask(self, method: Any, request: Any, model: str = "") -> Any:
        metadata = self._about(model) if model else self._headers
        return await _answer_of(method(request, timeout=self._question_seconds, metadata=metadata))


class MeshInference(TritonInference):
    """
    ModelMesh as a V2 gRPC server: it finds a model in any pod, and needs to be told which one a call is about.

    What is asked of no model it answers itself: it does not forward such calls. Source: ModelMesh's `DataplaneApiConfig.java` (of
    ModelInfer and ModelMetadata it reads the name in the message, of all else a header).
    """

    _question_seconds = None  # ModelMesh may have to load the model first, and ends that wait itself
    _is_well_if_it_refuses = True  # it has no model for such a call

    async def server_info(self) -> Any:
        """Its runtimes may be of any kind; what a front serves over it, their protocol has."""
        return service_pb2.ServerMetadataResponse(name="modelmesh", extensions=["binary_tensor_data", "parameters"])

    def _about(self, model: str) -> Metadata:
        named = (HEADER, model) if _VISIBLE.fullmatch(model) else (BINARY_HEADER, model.encode())
        return (*self._headers, named)


async def _answer_of(call: Any, request_id: str = "") -> Any:
    """Of a unary call, or of one read of a stream. Raises InferenceFailed."""
    with _in_our_words(request_id):
        reply = await call
    if reply is None:  # so grpc.aio says it
        raise InferenceFailed(Failure.INTERNAL, "the inference server's answer cannot be parsed")
    return reply


async def _next_of(call: Any, request_id: str, message: Any = None) -> Any:
    """The next message of a stream, after its request has been sent, where one is given. Raises InferenceFailed, also at its end."""
    if message is not None:
        with _in_our_words(request_id), suppress(asyncio.InvalidStateError):  # the call has failed already; the read says how
            await call.write(message)  # and no end of writing: Triton would take that for the end of the stream
    answer = await _answer_of(call.read(), request_id)
    if answer is grpc.aio.EOF:
        raise messages.failure_of(await call.code(), await call.details() or "the stream ended before its last answer", request_id)
    return answer


@contextmanager
def _in_our_words(request_id: str) -> Iterator[None]:
    """What ends a call is raised as InferenceFailed, but for a cancel of its caller's."""
    try:
        yield
    except grpc.aio.AioRpcError as error:
        raise messages.failure_of(error.code(), error.details() or "", request_id) from error
    except asyncio.CancelledError as cancelled:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise InferenceFailed(Failure.UNAVAILABLE, "the adapter is stopping") from cancelled  # grpc.aio says so where its channel is closed
