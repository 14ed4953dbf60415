"""
`grpc.health.v1` on the SPI's endpoint, for probes.

The service `""` is alive whenever this answers at all. `ready` (also `mmesh.ModelRuntime`) follows a
callable, and says why not in the trailing metadata `reason`. Nothing here asks Triton or ModelMesh:
a probe must never have an effect, and runtimeStatus has one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from urllib.parse import quote

from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1 import health_pb2_grpc as rpc

from adapter.spi.status import shown
from adapter.waits import set_within

READY_SERVICES = frozenset({"ready", "mmesh.ModelRuntime"})
REASON_KEY = "reason"
WATCH_SECONDS = 1.0
_PRINTABLE = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")

Context = aio.ServicerContext[Any, Any]
Status = pb.HealthCheckResponse


class Health(rpc.HealthServicer):
    """Health of the adapter, computed when asked."""

    def __init__(self, readiness: Callable[[], str | None]) -> None:
        self._readiness = readiness
        self._closed = asyncio.Event()

    async def Check(self, request: pb.HealthCheckRequest, context: Context) -> pb.HealthCheckResponse:  # noqa: N802 - the protocol's name
        """One answer. Kubernetes' gRPC probes use this."""
        status = self._status(request.service)
        if status == Status.SERVICE_UNKNOWN:
            await context.abort(StatusCode.NOT_FOUND, "unknown service; there are '' (alive) and 'ready'")
        if status == Status.NOT_SERVING:
            context.set_trailing_metadata(((REASON_KEY, quote(shown(self._readiness() or ""), safe=_PRINTABLE)),))
        return pb.HealthCheckResponse(status=status)

    async def Watch(  # noqa: N802 - the protocol's name
        self, request: pb.HealthCheckRequest, context: Context
    ) -> AsyncIterator[pb.HealthCheckResponse]:
        """The state now, and each change, until the server stops."""
        last = None
        while not self._closed.is_set():
            status = self._status(request.service)
            if status != last:
                yield pb.HealthCheckResponse(status=status)
                last = status
            await set_within(self._closed, WATCH_SECONDS)

    def close(self) -> None:
        """End all watches, which would hold the server's stop."""
        self._closed.set()

    def _status(self, service: str) -> int:
        if not service:
            return Status.SERVING
        if service not in READY_SERVICES:
            return Status.SERVICE_UNKNOWN
        return Status.SERVING if self._readiness() is None else Status.NOT_SERVING
