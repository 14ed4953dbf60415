"""
Failures → gRPC status: the one table of codes, and the rules for the text.

Codes say what the caller may conclude; a neighbour's code is never passed through. ModelMesh treats
all codes of a failed load alike, stores the text in its registry and shows it to users. A text of
more than about 8 KB on the wire is lost whole, as observed with ModelMesh's Java client.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from grpc import StatusCode

from adapter import errors
from adapter.errors import AdapterError
from adapter.telemetry.redaction import in_one_line

CODES: dict[type[AdapterError], StatusCode] = {
    AdapterError: StatusCode.INTERNAL,
    errors.Rejected: StatusCode.FAILED_PRECONDITION,
    errors.InvalidRequest: StatusCode.INVALID_ARGUMENT,
    errors.InvalidModel: StatusCode.INVALID_ARGUMENT,
    errors.WrongServer: StatusCode.FAILED_PRECONDITION,
    errors.CrashesTriton: StatusCode.FAILED_PRECONDITION,
    errors.NoCapacity: StatusCode.RESOURCE_EXHAUSTED,
    errors.DiskFull: StatusCode.RESOURCE_EXHAUSTED,
    errors.VolumeFailed: StatusCode.UNAVAILABLE,
    errors.SourceError: StatusCode.UNAVAILABLE,
    errors.SourceNotFound: StatusCode.NOT_FOUND,
    errors.SourceDenied: StatusCode.PERMISSION_DENIED,
    errors.SourceUnavailable: StatusCode.UNAVAILABLE,
    errors.SourceChanged: StatusCode.UNAVAILABLE,
    errors.ServerError: StatusCode.INTERNAL,
    errors.ModelRefused: StatusCode.INTERNAL,
    errors.ServerUnavailable: StatusCode.UNAVAILABLE,
    errors.ServerDied: StatusCode.UNAVAILABLE,
    errors.UnloadUnfinished: StatusCode.UNAVAILABLE,
    errors.Draining: StatusCode.UNAVAILABLE,
    errors.BudgetExceeded: StatusCode.DEADLINE_EXCEEDED,
    errors.Superseded: StatusCode.ABORTED,
    errors.Abandoned: StatusCode.ABORTED,
    errors.ModelNotLoaded: StatusCode.NOT_FOUND,
}
"""Inherited by subclasses that are not listed."""

FAMILIES = frozenset({AdapterError, errors.Rejected, errors.SourceError, errors.ServerError})
"""Classes that say whose fault it was; what is raised is one of their children."""

MAX_WIRE_BYTES = 4096
"""Bound of a text as gRPC percent-encodes it; far below the 8 KiB of headers that ModelMesh's client accepts."""
_CUT = "..."
_SHOWN_ID_BYTES = 1024
"""Of the wire: more than the longest valid id costs."""
_SHOWN_PHASES_BYTES = 1024


def code_of(error: AdapterError, method: str = "") -> StatusCode:
    """
    The code of a failure, of the nearest listed class.

    `runtimeStatus` never says DEADLINE_EXCEEDED: ModelMesh would end its process.
    Source: modelmesh `SidecarModelMesh.java` 661-672.
    """
    code = next(CODES[kind] for kind in type(error).__mro__ if kind in CODES)
    if code is StatusCode.DEADLINE_EXCEEDED and method == "runtimeStatus":
        return StatusCode.UNAVAILABLE
    return code


def text_of(error: AdapterError) -> str:
    """One line: the root cause, then ` (model 'x'; list 0.1 s, pull 26.8 s)`, within `MAX_WIRE_BYTES` on the wire."""
    tail = _place(error)
    return shown(error.text or error.reason, MAX_WIRE_BYTES - _wire_bytes(tail)) + tail


def shown(text: str, budget: int = MAX_WIRE_BYTES) -> str:
    """A text made safe to show: one line, no secrets, at a cost of no more than `budget` bytes on the wire."""
    return _shortened(in_one_line(text), budget)


def reasons() -> list[str]:
    """All that a failure may give: the label of logs and metrics."""
    return [kind.reason for kind in CODES if kind not in FAMILIES] + [AdapterError.reason]


def _place(error: AdapterError) -> str:
    parts = []
    if error.model_id is not None:
        parts.append(f"model '{shown(error.model_id, _SHOWN_ID_BYTES)}'")
    if error.phases:
        parts.append(shown(error.phases, _SHOWN_PHASES_BYTES))
    return f" ({'; '.join(parts)})" if parts else ""


def _shortened(text: str, budget: int) -> str:
    """The text, or its beginning and `...`, at a cost of no more than `budget` bytes on the wire."""
    costs = list(accumulate(map(_wire_bytes, text[: budget + 1]), initial=0))
    if costs[-1] <= budget:
        return text
    return text[: bisect_right(costs, budget - len(_CUT)) - 1] + _CUT


def _wire_bytes(text: str) -> int:
    """Bytes of a grpc-message: what is not printable ASCII, and '%', takes three. Source: gRPC over HTTP/2, Status-Message."""
    return sum(1 if 0x20 <= byte <= 0x7E and byte != 0x25 else 3 for byte in text.encode())
