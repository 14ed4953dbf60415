"""
Answers and failures as LMI and as TGI write them, whole and line by line. Pure.

What nobody told is null, or what TGI's types allow for it: its clients need a number for an id: -1, as DJL Serving has it. Sources: "LMI
handlers Inference API Schema", also its Error Responses; TGI `router/src/lib.rs` and its clients, which go by `error_type`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from adapter.errors import AdapterError, InvalidModel
from adapter.fronts.answers import NO_ROOM, UNAVAILABLE, HttpError, status_of
from adapter.fronts.llm.backends import Token
from adapter.fronts.llm.collecting import Collector
from adapter.fronts.llm.parameters import BadParameter, BadPayload
from adapter.fronts.memory import is_out_of_memory
from adapter.inference import Failure, InferenceFailed

JSON_LINES, SSE = "application/jsonlines", "text/event-stream"
UNKNOWN_ID = -1
UNKNOWN_REASON = "eos_token"
"""TGI's types have no null here. Source: DJL Serving, of TensorRT-LLM: what has not reached its limit has come to its end."""
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
    if isinstance(error, HttpError):
        is_bad = isinstance(error, BadPayload) or error.status == 400
        status = (INVALID if is_tgi else FAILED) if is_bad else error.status
        return Told(status=status, text=error.text, reason="payload", is_generation=isinstance(error, BadParameter))
    status = FAILED if isinstance(error, InvalidModel) else status_of(error)
    if isinstance(error, InferenceFailed):
        status = (_TGI if is_tgi else _LMI).get(error.failure, status)
        if is_out_of_memory(error.text, names, is_load=False, said=said):
            status = OVERLOADED if is_tgi else NO_ROOM
    return Told(status=status, text=error.text, reason=error.reason, is_generation=isinstance(error, InferenceFailed))


class Lmi:
    """LMI: rolling batch."""

    is_tgi = is_dynamic = False

    def line(self, token: Token, index: int, end: Collector | None, *, has_details: bool) -> Mapping[str, Any]:
        """One token of a stream, counted from 1; the last has the end."""
        line: dict[str, Any] = {"token": self._token(token)}
        if end is not None:
            line["generated_text"] = end.text
            if has_details:
                line["details"] = self._details(end)
        return line

    def whole(self, end: Collector, *, has_details: bool) -> Mapping[str, Any]:
        """An answer that is no stream."""
        if not has_details:
            return {"generated_text": end.text}
        tokens = None if end.tokens is None else [self._token(token) for token in end.tokens]
        return {"generated_text": end.text, "details": {**self._details(end), "tokens": tokens}}

    def failed(self, failure: Told) -> Mapping[str, Any]:
        """The answer to a request that failed."""
        error = {"error": failure.text, "code": failure.status}
        if not failure.is_generation:
            return error
        details = {"finish_reason": "error", "generated_tokens": None, "inputs": None, "tokens": None}
        return {"generated_text": "", "details": details, **error}

    def broken(self, failure: Told) -> Mapping[str, Any]:
        """The last line of a stream whose generation failed. The log probability of -1 is the document's own mark of an error."""
        return {
            "token": {"id": -1, "text": "", "log_prob": -1, "special_token": True, "error_msg": failure.text},
            "generated_text": "",
            "details": {"finish_reason": "error", "generated_tokens": None, "inputs": None},
        }

    @staticmethod
    def _token(token: Token) -> Mapping[str, Any]:
        return {"id": token.id, "text": token.text, "log_prob": token.log_prob}

    @staticmethod
    def _details(end: Collector) -> Mapping[str, Any]:
        return {"finish_reason": end.finish_reason, "generated_tokens": end.generated_tokens, "inputs": end.prompt}


class Dynamic(Lmi):
    """LMI: dynamic batch, which knows texts alone."""

    is_dynamic = True

    def whole(self, end: Collector, *, has_details: bool) -> Mapping[str, Any]:
        """Of one prompt."""
        return {"generated_text": end.text}

    def failed(self, failure: Told) -> Mapping[str, Any]:
        """As `Lmi`."""
        return {"error": failure.text, "code": failure.status, "message": "invoke handler failure"}

    broken = failed


class Tgi:
    """Text generation inference."""

    is_tgi, is_dynamic = True, False

    def line(self, token: Token, index: int, end: Collector | None, *, has_details: bool) -> Mapping[str, Any]:
        """As `Lmi`."""
        details = None
        if end is not None and has_details:
            details = {**self._details(end), "input_length": end.prompt_tokens}
        text = end.text if end is not None else None
        return {"index": index, "token": self._token(token), "generated_text": text, "details": details}

    def whole(self, end: Collector, *, has_details: bool) -> Mapping[str, Any]:
        """As `Lmi`."""
        if not has_details:
            return {"generated_text": end.text}
        tokens = [self._token(token) for token in end.tokens or ()]
        return {"generated_text": end.text, "details": {**self._details(end), "prefill": [], "tokens": tokens}}

    def failed(self, failure: Told) -> Mapping[str, Any]:
        """As `Lmi`."""
        return tgi_body(failure.status, failure.text)

    def broken(self, failure: Told) -> Mapping[str, Any]:
        """As `Lmi`."""
        return {"error": failure.text, "error_type": "generation"}

    @staticmethod
    def _token(token: Token) -> Mapping[str, Any]:
        token_id = UNKNOWN_ID if token.id is None else token.id
        return {"id": token_id, "text": token.text, "logprob": token.log_prob, "special": False}

    @staticmethod
    def _details(end: Collector) -> Mapping[str, Any]:
        count = UNKNOWN_ID if end.generated_tokens is None else end.generated_tokens
        return {"finish_reason": end.finish_reason or UNKNOWN_REASON, "generated_tokens": count, "seed": end.seed}


Schema = Lmi | Tgi


def tgi_body(status: int, text: str) -> Mapping[str, Any]:
    """An error as TGI writes it. Without a type its clients go by the status."""
    kind = TYPES.get(OVERLOADED if status == UNAVAILABLE else INVALID if status in (408, 413, 415) else status)
    return {"error": text, "error_type": kind} if kind else {"error": text}


def framed(value: Mapping[str, Any], content_type: str) -> bytes:
    """One line of a stream. TGI and LMI send no `[DONE]`: a client of theirs could not read it."""
    line = orjson.dumps(value)
    return b"data: " + line + b"\n\n" if content_type == SSE else line + b"\n"
