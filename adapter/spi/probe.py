"""
Ask a running adapter for its health, as `modelmesh-triton-adapter probe` does.

Starts for every probe of Kubernetes, so it imports little: the two messages of `grpc.health.v1` are
read and written by hand, which saves the protobuf runtime.
"""

from __future__ import annotations

from urllib.parse import unquote

import grpc

from adapter.units import Endpoint

_CHECK = "/grpc.health.v1.Health/Check"
_SERVING = b"\x08\x01"
"""HealthCheckResponse with field 1, status, set to SERVING."""
OPTIONS = (("grpc.enable_http_proxy", 0),)


def probe(endpoint: Endpoint, *, ready: bool, timeout_seconds: float) -> tuple[bool, str]:
    """Whether the adapter is alive (or ready), and one line that says so, or why not."""
    service = b"ready" if ready else b""
    request = b"\x0a" + bytes([len(service)]) + service if service else b""
    with grpc.insecure_channel(endpoint.target, options=OPTIONS) as channel:
        check = channel.unary_unary(_CHECK, request_serializer=bytes, response_deserializer=bytes)
        try:
            response, call = check.with_call(request, timeout=timeout_seconds)
        except grpc.RpcError as error:
            return False, f"no answer from {endpoint}: {_cause(error, timeout_seconds)}"
    if response == _SERVING:
        return True, "ready" if ready else "alive"
    reason = next((str(value) for key, value in call.trailing_metadata() or () if key == "reason"), "no reason given")
    return False, f"not ready: {_line(unquote(reason))}"


def _cause(error: grpc.RpcError, timeout_seconds: float) -> str:
    """In words: gRPC's own text names every address that it tried."""
    code, details = error.code(), error.details() or ""
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return f"nothing within {timeout_seconds:g} s"
    for known in ("connection refused", "no such file or directory", "permission denied", "connection reset"):
        if known in details.lower():
            return known
    return _line(f"{code.name.lower().replace('_', ' ')}: {details}")[:300]


def _line(text: str) -> str:
    """What a peer says, in one line without control characters."""
    return " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
