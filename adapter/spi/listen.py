"""
The gRPC server on its endpoint: bound, started, stopped; and `grpc.health.v1` on it, for probes.

Owns the port or the socket file. A second adapter on the same port fails in one sentence instead of
sharing it; one on the same socket file fails by the claim of its volume. Only loopback is bound unless the endpoint names another host.

The health service `""` is alive whenever this answers at all. `ready` (also `mmesh.ModelRuntime`) follows a
callable, and says why not in the trailing metadata `reason`. It asks neither Triton nor ModelMesh:
a probe must never have an effect, and runtimeStatus has one.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpc import StatusCode, aio
from grpc_health.v1 import health_pb2_grpc
from grpc_health.v1.health_pb2 import HealthCheckRequest as Request
from grpc_health.v1.health_pb2 import HealthCheckResponse as Status

from adapter._pb import model_runtime_pb2_grpc
from adapter.errors import ListenError
from adapter.spi.codec import on_wire, shown
from adapter.spi.servicer import ModelRuntime
from adapter.units import Endpoint

MAX_MESSAGE_BYTES = 4 * 1024 * 1024
"""Of one call: ids, paths and keys. More is refused before it is parsed."""
HANDSHAKE_SECONDS = 20
"""A connection that has not spoken HTTP/2 by then is closed: a client that opens many and stays silent gives their descriptors back."""
_NO_BOUND = 2**31 - 1
OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.server_handshake_timeout_ms", HANDSHAKE_SECONDS * 1000),
    # Calls are never refused for their number: ModelMesh would take a load that is refused for a model that has failed. By itself
    # gRPC refuses some when 1,000 wait, and all from 3,000 on, while the loop is busy (`max_pending_requests`, channel_arg_names.h).
    ("grpc.max_concurrent_streams", _NO_BOUND),
    ("grpc.server.max_pending_requests", _NO_BOUND),
    ("grpc.server.max_pending_requests_hard_limit", _NO_BOUND),
)
SOCKET_MODE = 0o666
"""ModelMesh runs as another user."""
READY_SERVICES = frozenset({"ready", "mmesh.ModelRuntime"})

Context = aio.ServicerContext[Any, Any]


class Health(health_pb2_grpc.HealthServicer):
    """Health of the adapter, computed when asked."""

    def __init__(self, readiness: Callable[[], str | None]) -> None:
        self._readiness = readiness

    async def Check(self, request: Request, context: Context) -> Status:  # noqa: N802 - the protocol's name
        """One answer. Kubernetes' gRPC probes use this; `Watch` is not implemented."""
        if request.service not in ("", *READY_SERVICES):
            await context.abort(StatusCode.NOT_FOUND, "unknown service; there are '' (alive) and 'ready'")
        problem = self._readiness() if request.service else None
        if problem is None:
            return Status(status=Status.SERVING)
        context.set_trailing_metadata((("reason", on_wire(shown(problem))),))
        return Status(status=Status.NOT_SERVING)


@dataclass(frozen=True)
class SpiServer:
    """The server while it listens."""

    addresses: list[str]
    """gRPC targets that reach it, the IPv4 one first."""
    stop: Callable[[float], Awaitable[None]]
    """Take no new calls, give those under way the grace period in seconds, then cancel them."""


async def listen(*, endpoint: Endpoint, runtime: ModelRuntime, readiness: Callable[[], str | None], reflection: bool) -> SpiServer:
    """
    Serve `mmesh.ModelRuntime` and `grpc.health.v1` on the endpoint.

    Raises:
        ListenError: it cannot be bound; the text says why.
    """
    server = aio.server(options=OPTIONS, maximum_concurrent_rpcs=None)
    model_runtime_pb2_grpc.add_ModelRuntimeServicer_to_server(runtime, server)
    health_pb2_grpc.add_HealthServicer_to_server(Health(readiness), server)
    if reflection:
        from grpc_reflection.v1alpha import reflection as found  # noqa: PLC0415 - for debugging: it stays out otherwise

        found.enable_server_reflection(("mmesh.ModelRuntime", "grpc.health.v1.Health", found.SERVICE_NAME), server)
    try:
        addresses = _bind_socket(server, endpoint.socket) if endpoint.socket else _bind_port(server, endpoint)
        await server.start()
    except (OSError, RuntimeError) as error:
        await server.stop(None)
        raise ListenError(f"{endpoint} cannot be used: {_why(error, endpoint.socket)}") from error
    return SpiServer(addresses, server.stop)


def _why(error: OSError | RuntimeError, path: Path | None) -> str:
    if isinstance(error, RuntimeError):
        return "gRPC failed to bind it" + (f": may we write to {path.parent}, and is nothing there but a socket?" if path else "")
    taken = "; another adapter may be running, or ADAPTER_PORT is taken" if error.errno == errno.EADDRINUSE else ""
    return f"{(error.strerror or str(error)).partition(' (')[0].lower()}{taken}"


def _bind_port(server: aio.Server, endpoint: Endpoint) -> list[str]:
    """`localhost` is both loopback addresses: ModelMesh's resolver may try either first. IPv4 is a must."""
    hosts = ["127.0.0.1"] if endpoint.host == "localhost" else [endpoint.host]
    if endpoint.host == "localhost":
        with suppress(OSError):
            _try_port("[::1]", 0)
            hosts.append("[::1]")
    port = endpoint.port
    for host in hosts:
        _try_port(host, port)
        port = server.add_insecure_port(f"{host}:{port}")
    return [f"{host}:{port}" for host in hosts]


def _try_port(host: str, port: int) -> None:
    """Bind it ourselves for a moment: gRPC does not tell why it failed. Raises OSError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    socket.create_server((host.strip("[]"), port), family=family).close()


def _bind_socket(server: aio.Server, path: Path) -> list[str]:
    """In place of what a dead server has left. gRPC removes the file when it stops."""
    path.parent.mkdir(parents=True, exist_ok=True)
    server.add_insecure_port(f"unix:{path}")
    path.chmod(SOCKET_MODE)
    return [f"unix:{path}"]
