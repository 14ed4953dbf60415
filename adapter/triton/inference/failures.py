"""What a failed call to a V2 gRPC server means for its caller. Pure."""

from __future__ import annotations

import re

from grpc import StatusCode

from adapter.inference import Failure, InferenceFailed
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
_ID = re.compile(r"^\[request id: [^\]]*\]\s*")
"""Source: Triton puts it before the text of what a request has caused (core `infer_request.h`, LOG_REQUEST)."""
_UNKNOWN_MODEL = re.compile(r"Request for unknown model|model '[^']*' (?:version [^ ]+ )?is not (?:found|ready)|is not ready, no available")
"""A model that is not loaded is UNAVAILABLE for Triton, as is a full queue. Source: Triton core `model_repository_manager.cc`."""


def failure_of(code: StatusCode, details: str) -> InferenceFailed:
    """The failure, with the server's own words in one line."""
    text = one_line(_ID.sub("", details))
    failure = _FAILURES.get(code, Failure.INTERNAL)
    if _UNKNOWN_MODEL.search(text):
        failure = Failure.NOT_FOUND
    elif code is StatusCode.UNAVAILABLE and ("failed to connect" in text or "Connection refused" in text or "DNS" in text):
        text = f"Triton is away ({text.rpartition(': ')[2]})"
    return InferenceFailed(failure, text)
