"""
What a failure is to a caller of LMI or of TGI: status and body. Pure.

Sources: "LMI handlers Inference API Schema", Error Responses; TGI `router/src/lib.rs` and its clients, which go by `error_type`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from adapter.errors import AdapterError, InvalidModel
from adapter.fronts.answers import NO_ROOM, UNAVAILABLE, HttpError, status_of
from adapter.fronts.llm.parameters import BadParameter, BadPayload
from adapter.fronts.memory import is_out_of_memory
from adapter.inference import Failure, InferenceFailed

FAILED, INVALID, OVERLOADED = 424, 422, 429
_LMI = {Failure.INVALID: FAILED, Failure.UNSUPPORTED: FAILED, Failure.INTERNAL: FAILED}
_TGI = {
    Failure.INVALID: INVALID,
    Failure.UNSUPPORTED: INVALID,
    Failure.INTERNAL: FAILED,
    Failure.UNAVAILABLE: OVERLOADED,
    Failure.TIMEOUT: 500,
}
TYPES = {INVALID: "validation", FAILED: "generation", OVERLOADED: "overloaded", 500: "incomplete_generation"}
"""Status → TGI's `error_type`."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """A failure in words."""

    status: int
    text: str
    reason: str
    """For the log."""
    is_generation: bool
    """A parameter, or the generation itself: LMI then answers as if there were a text."""


def told(error: AdapterError | HttpError, names: Collection[str], *, is_tgi: bool, said: str = "") -> Told:
    """
    Of a failed request.

    Args:
        error: what has failed.
        names: of the model: they do not count where a text says that memory is out.
        is_tgi: whose statuses.
        said: the request, as text: neither do its words.
    """
    if isinstance(error, InferenceFailed):
        status = (_TGI if is_tgi else _LMI).get(error.failure) or status_of(error)
        if is_out_of_memory(error.text, names, is_load=False, said=said):
            status = OVERLOADED if is_tgi else NO_ROOM
        return Told(status=status, text=error.text, reason=error.reason, is_generation=True)
    if isinstance(error, AdapterError):
        status = FAILED if isinstance(error, InvalidModel) else status_of(error)
        return Told(status=status, text=error.text, reason=error.reason, is_generation=False)
    is_bad = isinstance(error, BadPayload) or error.status == 400
    status = (INVALID if is_tgi else FAILED) if is_bad else error.status
    return Told(status=status, text=error.text, reason="payload", is_generation=isinstance(error, BadParameter))


def lmi_body(failure: Told, *, is_dynamic: bool) -> Mapping[str, Any]:
    """As LMI writes it."""
    error = {"error": failure.text, "code": failure.status}
    if is_dynamic:
        return {**error, "message": "invoke handler failure"}
    if not failure.is_generation:
        return error
    details = {"finish_reason": "error", "generated_tokens": None, "inputs": None, "tokens": None}
    return {"generated_text": "", "details": details, **error}


def tgi_body(status: int, text: str) -> Mapping[str, Any]:
    """As TGI writes it. Without a type its clients go by the status."""
    kind = TYPES.get(OVERLOADED if status == UNAVAILABLE else INVALID if status in (408, 413, 415) else status)
    return {"error": text, "error_type": kind} if kind else {"error": text}
