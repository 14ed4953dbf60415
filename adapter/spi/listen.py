"""
The gRPC server on its endpoint: bound, started, stopped.

Owns the port or the socket file. A second adapter on the same endpoint fails in one sentence instead
of sharing it. Only loopback is bound unless the endpoint names another host.
"""

from __future__ import annotations

import errno
import os
import secrets
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from grpc import aio
from grpc_health.v1 import health_pb2_grpc

from adapter._pb import model_runtime_pb2_grpc
from adapter.errors import ListenError
from adapter.spi.health import Health
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
PROBE_SECONDS = 1.0
"""Longest wait for a server on an existing socket file."""


@dataclass(frozen=True)
class SpiServer:
    """The server while it listens."""

    server: aio.Server
    health: Health
    addresses: list[str]
    """gRPC targets that reach it, the IPv4 one first."""
    socket: tuple[Path, os.stat_result] | None
    """Our socket file, and which one it is."""

    async def stop(self, grace_seconds: float) -> None:
        """Take no new calls, give those under way the grace period, then cancel them; remove our socket file."""
        self.health.close()
        await self.server.stop(grace_seconds)
        if self.socket is not None:
            path, ours = self.socket
            with suppress(FileNotFoundError):
                if os.path.samestat(ours, path.stat()):
                    path.unlink()


async def listen(*, endpoint: Endpoint, runtime: ModelRuntime, readiness: Callable[[], str | None], reflection: bool) -> SpiServer:
    """
    Serve `mmesh.ModelRuntime` and `grpc.health.v1` on the endpoint.

    Raises:
        ListenError: it cannot be bound; the text says why.
    """
    server = aio.server(options=OPTIONS, maximum_concurrent_rpcs=None)
    health = Health(readiness)
    model_runtime_pb2_grpc.add_ModelRuntimeServicer_to_server(runtime, server)
    health_pb2_grpc.add_HealthServicer_to_server(health, server)
    if reflection:
        from grpc_reflection.v1alpha import reflection as found  # noqa: PLC0415 - for debugging: it stays out otherwise

        found.enable_server_reflection(("mmesh.ModelRuntime", "grpc.health.v1.Health", found.SERVICE_NAME), server)
    try:
        addresses = _bind_socket(server, endpoint.socket) if endpoint.socket else _bind_port(server, endpoint)
        await server.start()
    except BaseException:
        await server.stop(None)
        raise
    return SpiServer(server, health, addresses, (endpoint.socket, endpoint.socket.stat()) if endpoint.socket else None)


def _bind_port(server: aio.Server, endpoint: Endpoint) -> list[str]:
    """`localhost` is both loopback addresses: ModelMesh's resolver may try either first. IPv4 is a must."""
    hosts = [endpoint.host]
    if endpoint.host == "localhost":
        hosts = ["127.0.0.1"]
        with suppress(ListenError):
            _check_port("[::1]", 0)
            hosts.append("[::1]")
    port = endpoint.port
    for host in hosts:
        _check_port(host, port)
        try:
            port = server.add_insecure_port(f"{host}:{port}")
        except RuntimeError as error:
            raise ListenError(f"{host}:{port} cannot be used: gRPC failed to bind it") from error
    return [f"{host}:{port}" for host in hosts]


def _check_port(host: str, port: int) -> None:
    """Bind it ourselves for a moment: gRPC does not tell why it failed."""
    try:
        family, kind, _, _, address = socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
            probe.listen(1)
    except OSError as error:
        hint = "; another adapter may be running, or ADAPTER_PORT is taken" if error.errno == errno.EADDRINUSE else ""
        raise ListenError(f"{host}:{port} cannot be used: {_words(error)}{hint}") from error


def _bind_socket(server: aio.Server, path: Path) -> list[str]:
    """
    Bind under a name of its own, then rename, over what a dead server has left.

    So no client finds a socket that it may not use yet; and gRPC, which removes the file that it has bound
    when it stops, cannot remove that of a successor.
    """
    staged = path.with_name(f".{secrets.token_hex(3)}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _refuse_taken(path)
        server.add_insecure_port(f"unix:{staged}")
        staged.chmod(SOCKET_MODE)
        staged.rename(path)
    except OSError as error:
        raise ListenError(f"the socket {path} cannot be used: {_words(error)}") from error
    except RuntimeError as error:
        raise ListenError(f"the socket {path} cannot be used: gRPC failed to bind it (may we write to {path.parent}?)") from error
    return [f"unix:{path}"]


def _refuse_taken(path: Path) -> None:
    """Only the socket file of a server that has gone may be replaced."""
    if not os.path.lexists(path):
        return
    if not path.is_socket():
        raise ListenError(f"the socket {path} cannot be used: something that is not a socket is there")
    with closing(socket.socket(socket.AF_UNIX)) as probe:
        probe.settimeout(PROBE_SECONDS)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            return
        except TimeoutError:
            pass  # a server listens, but is too busy to accept
    raise ListenError(f"the socket {path} cannot be used: another server listens on it")


def _words(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
