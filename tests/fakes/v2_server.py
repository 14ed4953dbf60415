"""A V2 gRPC server that answers what a test tells it to: for what no Triton can be brought to say. Stands for ModelMesh, too."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from adapter.stubs import service_pb2 as pb
from adapter.stubs import service_pb2_grpc


class V2Server(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc] # Triton's stubs have no types
    """`async with V2Server() as server:`; a client finds it at `server.target`."""

    def __init__(self, *, certificates: Path | None = None) -> None:
        """`certificates`: a folder of `make_certificates`: TLS alone, and clients show a certificate."""
        self.reply = pb.ModelInferResponse()
        """Of every ModelInfer."""
        self.answers: Sequence[pb.ModelStreamInferResponse] = ()
        """Of every stream; then it ends."""
        self.failure: tuple[grpc.StatusCode, str] | None = None
        """How every call ends instead."""
        self.requests: list[Any] = []
        self.metadata: list[dict[str, str | bytes]] = []
        """Of each inference and question, in order."""
        self.is_held = False
        """Inferences are answered never."""
        self.ended = 0
        """Inferences that were cancelled."""
        self.max_batch_size = 0
        """What it says of every model."""
        self.has_configs = True
        """ModelConfig is an extension of Triton's."""
        self._server = grpc.aio.server(options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1)])
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        if certificates is not None:
            key, certificate, ca = ((certificates / name).read_bytes() for name in ("server.key", "server.pem", "ca.pem"))
            credentials = grpc.ssl_server_credentials([(key, certificate)], ca, require_client_auth=True)
            self.port = self._server.add_secure_port("127.0.0.1:0", credentials)
        else:
            self.port = self._server.add_insecure_port("127.0.0.1:0")

    @property
    def target(self) -> str:
        """For a gRPC channel."""
        return f"127.0.0.1:{self.port}"

    async def __aenter__(self) -> V2Server:
        await self._server.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._server.stop(None)

    async def stop(self) -> None:
        """Every connection breaks."""
        await self._server.stop(None)

    # The service. Names are those of inference.GRPCInferenceService.

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        await self._enter(request, context)
        return self.reply

    async def ModelStreamInfer(self, requests: Any, context: Any) -> Any:
        async for request in requests:
            await self._enter(request, context)
            for answer in self.answers:
                yield answer
            return

    async def ModelMetadata(self, request: Any, context: Any) -> Any:
        await self._enter(request, context)
        return pb.ModelMetadataResponse(name=request.name, versions=["1"])

    async def ServerLive(self, request: Any, context: Any) -> Any:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "mm-model-id header must be provided")  # as ModelMesh

    async def ModelReady(self, request: Any, context: Any) -> Any:
        await self._enter(request, context)
        return pb.ModelReadyResponse(ready=True)

    async def ModelConfig(self, request: Any, context: Any) -> Any:
        if not self.has_configs:
            await context.abort(grpc.StatusCode.UNIMPLEMENTED, "Method not found")
        self.metadata.append(dict(context.invocation_metadata() or ()))
        reply = pb.ModelConfigResponse()
        reply.config.max_batch_size = self.max_batch_size
        return reply

    async def _enter(self, request: Any, context: Any) -> None:
        self.requests.append(request)
        self.metadata.append(dict(context.invocation_metadata() or ()))
        if self.failure is not None:
            await context.abort(*self.failure)
        if self.is_held:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self.ended += 1
