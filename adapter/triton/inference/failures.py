"""What a failed call to a V2 gRPC server means for its caller. Pure."""

from __future__ import annotations

import re

from grpc import StatusCode

from adapter.inference import Failure, InferenceFailed
from adapter.telemetry.redaction import redact
from adapter.triton.reason import one_line

_FAILURES: dict[StatusCode, Failure] = {
    StatusCode.INVALID_ARGUMENT: Failure.INVALID,
    StatusCode.OUT_OF_RANGE: Failure.INVALID,
    StatusCode.ALREADY_EXISTS: Failure.INVALID,
    StatusCode.FAILED_PRECONDITION: Failure.INVALID,
    StatusCode.NOT_FOUND: Failure.NOT_FOUND,
    StatusCode.UNAVAILABLE: Failure.UNAVAILABLE,
    StatusCode.RESOURCE_EXHAUSTED: Failure.UNAVAILABLE,
    StatusCode.UNIMPLEMENTED: Failure.UNSUPPORTED,
    StatusCode.PERMISSION_DENIED: Failure.DENIED,
    StatusCode.UNAUTHENTICATED: Failure.DENIED,
    StatusCode.DEADLINE_EXCEEDED: Failure.TIMEOUT,
    StatusCode.CANCELLED: Failure.TIMEOUT,
}
_LOCAL_LIMIT = re.compile(r"(?:Received|Sent) message larger than max|CLIENT: (?:Received|Sent) message")
"""gRPC's RESOURCE_EXHAUSTED for a message above the channel's limit: the same request never works."""
_UNKNOWN_MODEL = re.compile(r"^Request for unknown model: '")
"""No such model or version, or it is not at ready state (for which Triton has UNAVAILABLE). Source: Triton core `model_lifecycle.cc`."""
_AWAY = re.compile(r"failed to connect to all addresses|DNS resolution failed|errors resolving|empty address list")
_BROKEN = ("Stream removed", "RST_STREAM", "Socket closed", "recvmsg:", "Broken pipe", "GOAWAY")
"""Beginnings of gRPC's own words for a connection that broke during a call."""
_LATER = re.compile(r"^(?:Exceeds maximum queue size|Server exiting|Server not ready)")


def failure_of(code: StatusCode, details: str, request_id: str = "") -> InferenceFailed:
    """
    Of a call's status, with the server's own words in one line.

    Args:
        code: as gRPC has it.
        details: as gRPC has them.
        request_id: the request's own, which Triton writes before its words.
    """
    text = _words(details, request_id)
    failure = _FAILURES.get(code, Failure.INTERNAL)
    if _UNKNOWN_MODEL.match(text):
        failure = Failure.NOT_FOUND
    elif code is StatusCode.RESOURCE_EXHAUSTED and _LOCAL_LIMIT.search(text):
        failure = Failure.INVALID
    elif code is StatusCode.UNAVAILABLE and _AWAY.search(text):
        text = f"the inference server is away: {text.rpartition(': ')[2]}"
    elif text.startswith(_BROKEN):
        failure, text = Failure.UNAVAILABLE, f"the connection to the inference server broke: {text}"
    return InferenceFailed(failure, text)


def failure_in_stream(text: str, is_models: bool, request_id: str = "") -> InferenceFailed:
    """
    Of an error's text in an answer of a stream: it has no code, so the words decide.

    Args:
        text: `error_message`.
        is_models: the answer names its model: the model has failed. Else the request was never taken.
        request_id: as above.
    """
    text = _words(text, request_id)
    if _UNKNOWN_MODEL.match(text):
        return InferenceFailed(Failure.NOT_FOUND, text)
    if _LATER.match(text):
        return InferenceFailed(Failure.UNAVAILABLE, text)
    return InferenceFailed(Failure.INTERNAL if is_models else Failure.INVALID, text)


def _words(details: str, request_id: str) -> str:
    """Triton's `[request id: …]` is of no use to the caller who has sent that id. Source: Triton core `infer_request.h`."""
    for own in (request_id, "<id_unknown>"):
        details = details.removeprefix(f"[request id: {own}]")
    return redact(one_line(details, moment="while it answered"))
