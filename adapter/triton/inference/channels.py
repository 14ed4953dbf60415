"""A channel to a V2 gRPC server: its options, and TLS."""

from __future__ import annotations

import ssl
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from adapter.errors import StartError
from adapter.triton.client import CONNECTION_OPTIONS

_OPTIONS: tuple[tuple[str, int], ...] = (
    *CONNECTION_OPTIONS,
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own: tensors hold no other call up, and wait behind no load
)
_STEPS = 10
"""More than a handshake has."""


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


def pinned(certificate: Path, key: Path) -> Tls:
    """
    TLS with a neighbour in the pod that has the same certificate as we have: it alone is trusted, whatever name it is for.

    Raises:
        StartError: the files cannot be read, do not belong together, or the certificate is for no name or out of its time.
    """
    try:
        chain, own_key = certificate.read_bytes(), key.read_bytes()
        names = _names(certificate, key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "verify_message", None) or getattr(error, "reason", None) or error.strerror or str(error)
        raise StartError(f"MM_TLS_KEY_CERT_PATH and MM_TLS_PRIVATE_KEY_PATH cannot be used: {str(reason).lower()}") from error
    if not names:
        raise StartError("MM_TLS_KEY_CERT_PATH has a certificate that is for no name, so TLS cannot check it")
    return Tls(ca=chain, certificate=chain, key=own_key, server_name=names[0].replace("*", "modelmesh", 1))


def _names(certificate: Path, key: Path) -> list[str]:
    """What the certificate is for, as a client sees it: a handshake in memory, so the library reads it."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(certificate, key, password=_no_password)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    client.load_verify_locations(certificate)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(back, there), server.wrap_bio(there, back, server_side=True)
    for step in range(_STEPS):
        with suppress(ssl.SSLWantReadError):
            ends[step % 2].do_handshake()
    found: Any = ends[0].getpeercert() or {}
    names = [name for kind, name in found.get("subjectAltName", ()) if kind in ("DNS", "IP Address")]
    return names or [value for parts in found.get("subject", ()) for name, value in parts if name == "commonName"]


def _no_password() -> str:
    raise ssl.SSLError("the private key is encrypted")
