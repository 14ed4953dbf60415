"""
Answers of HTTP: exact content types, JSON bytes, and what a failure's status is where a front has no other rule.

Clients compare content types as text, so JSON has no charset. Source: tests of DJL Serving (`response_checker`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from aiohttp import hdrs, web

from adapter import errors
from adapter.errors import AdapterError
from adapter.fronts.accept import coding_of
from adapter.inference import Failure, InferenceFailed
from adapter.serving import AlreadyLoaded

JSON = "application/json"
UNAVAILABLE, NO_ROOM = 503, 507
COMPRESSED_FROM_BYTES = 1024

STATUSES: dict[type[AdapterError], int] = {
    AdapterError: 500,
    errors.Rejected: 400,
    errors.InvalidRequest: 400,
    errors.InvalidModel: 400,
    AlreadyLoaded: 409,
    errors.ModelNotLoaded: 404,
    errors.NoCapacity: NO_ROOM,
    errors.DiskFull: NO_ROOM,
    errors.Draining: UNAVAILABLE,
    errors.WrongServer: UNAVAILABLE,
    errors.VolumeFailed: UNAVAILABLE,
    errors.SourceError: UNAVAILABLE,
    errors.SourceNotFound: 404,
    errors.SourceDenied: 403,
    errors.ServerError: 500,
    errors.ServerUnavailable: UNAVAILABLE,
    errors.ModelRefused: 400,
    errors.UnloadUnfinished: 500,
    errors.BudgetExceeded: 504,
    errors.Superseded: UNAVAILABLE,
    errors.Abandoned: UNAVAILABLE,
}
"""Inherited by subclasses that are not listed."""

FAILURES: dict[Failure, int] = {
    Failure.INVALID: 400,
    Failure.NOT_FOUND: 404,
    Failure.UNAVAILABLE: UNAVAILABLE,
    Failure.UNSUPPORTED: 501,
    Failure.DENIED: 403,
    Failure.TIMEOUT: 504,
    Failure.INTERNAL: 500,
}


class HttpError(Exception):
    """A request that a front refuses. The text is one line for its caller."""

    def __init__(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(text)
        self.status = status
        self.text = text
        self.headers = dict(headers or {})


def status_of(error: AdapterError) -> int:
    """The status of a failure, of the nearest listed class."""
    if isinstance(error, InferenceFailed):
        return FAILURES[error.failure]
    return next(STATUSES[kind] for kind in type(error).__mro__ if kind in STATUSES)


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A JSON body, with exactly `application/json`."""
    return bytes_answer(orjson.dumps(value), JSON, status, headers)


def bytes_answer(body: bytes, content_type: str, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    """A body with exactly this content type."""
    return web.Response(body=body, status=status, headers={**(headers or {}), "Content-Type": content_type})


def compressed(request: web.Request, answer: web.Response) -> web.Response:
    """The answer, gzip or deflate if its client takes that and it is long enough to gain."""
    coding = coding_of(request.headers.getall(hdrs.ACCEPT_ENCODING, ()))
    if coding is not None and isinstance(answer.body, bytes) and len(answer.body) >= COMPRESSED_FROM_BYTES:
        answer.enable_compression(web.ContentCoding(coding))
    return answer
