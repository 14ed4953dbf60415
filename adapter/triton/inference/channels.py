"""A channel to a V2 gRPC server: its options, and TLS."""

from __future__ import annotations

from dataclasses import dataclass

import grpc
import grpc.aio

from adapter.triton.client import CONNECTION_OPTIONS

_OPTIONS: tuple[tuple[str, int], ...] = (
    *CONNECTION_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own: tensors hold no other call up, and wait behind no load
)


@dataclass(frozen=True, kw_only=True)
class Tls:
    """How the server proves who it is, and the client. All in PEM."""

    ca: bytes | None = None
    """Whom to trust. None: gRPC's own list."""
    certificate: bytes | None = None
    """The client's own, with `key`; for a server that asks for one."""
    key: bytes | None = None
    server_name: str = ""
    """The name in the server's certificate, where that is not the target's."""


def channel_to(target: str, tls: Tls | None, max_message_bytes: int) -> grpc.aio.Channel:
    """
    A channel, which connects at its first call.

    Args:
        target: in gRPC's form.
        tls: None for none.
        max_message_bytes: of a request and of an answer; -1 for no limit.
    """
    options = [*_OPTIONS, ("grpc.max_receive_message_length", max_message_bytes), ("grpc.max_send_message_length", max_message_bytes)]
    if tls is None:
        return grpc.aio.insecure_channel(target, options=options)
    if tls.server_name:
        options.append(("grpc.ssl_target_name_override", tls.server_name))  # type: ignore[arg-type] # a text among numbers
    credentials = grpc.ssl_channel_credentials(tls.ca, tls.key, tls.certificate)
    return grpc.aio.secure_channel(target, credentials, options=options)
