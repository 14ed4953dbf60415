"""
Answers as LMI and as TGI write them, whole and line by line; what nobody told is null, or what TGI's types allow for it. Pure.

Sources: "LMI handlers Inference API Schema"; TGI `router/src/lib.rs`. Its clients need a number for an id: -1, as DJL Serving has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import orjson

from adapter.fronts.llm.backends import Token
from adapter.fronts.llm.collecting import End

JSON_LINES, SSE = "application/jsonlines", "text/event-stream"
UNKNOWN_ID = -1
UNKNOWN_REASON = "eos_token"
"""TGI's types have no null here. Source: DJL Serving, of TensorRT-LLM: what has not reached its limit has come to its end."""


class Schema(Protocol):
    """One of the two."""

    is_tgi: bool

    def line(self, token: Token, index: int, end: End | None, *, has_details: bool) -> Mapping[str, Any]:
        """One token of a stream, counted from 1; the last has the end."""
        ...

    def whole(self, end: End, *, has_details: bool) -> Mapping[str, Any]:
        """An answer that is no stream."""
        ...

    def broken(self, text: str) -> Mapping[str, Any]:
        """The last line of a stream whose generation failed."""
        ...


class Lmi:
    """Rolling batch."""

    is_tgi = False

    def line(self, token: Token, index: int, end: End | None, *, has_details: bool) -> Mapping[str, Any]:
        """As `Schema`."""
        line: dict[str, Any] = {"token": self._token(token)}
        if end is not None:
            line["generated_text"] = end.text
            if has_details:
                line["details"] = self._details(end)
        return line

    def whole(self, end: End, *, has_details: bool) -> Mapping[str, Any]:
        """As `Schema`."""
        if not has_details:
            return {"generated_text": end.text}
        tokens = None if end.tokens is None else [self._token(token) for token in end.tokens]
        return {"generated_text": end.text, "details": {**self._details(end), "tokens": tokens}}

    def broken(self, text: str) -> Mapping[str, Any]:
        """As `Schema`. The log probability of -1 is the document's own mark of an error."""
        return {
            "token": {"id": -1, "text": "", "log_prob": -1, "special_token": True, "error_msg": text},
            "generated_text": "",
            "details": {"finish_reason": "error", "generated_tokens": None, "inputs": None},
        }

    @staticmethod
    def _token(token: Token) -> Mapping[str, Any]:
        return {"id": token.id, "text": token.text, "log_prob": token.log_prob}

    @staticmethod
    def _details(end: End) -> Mapping[str, Any]:
        return {"finish_reason": end.finish_reason, "generated_tokens": end.generated_tokens, "inputs": end.prompt}


class Tgi:
    """Text generation inference."""

    is_tgi = True

    def line(self, token: Token, index: int, end: End | None, *, has_details: bool) -> Mapping[str, Any]:
        """As `Schema`."""
        details = None
        if end is not None and has_details:
            details = {**self._details(end), "input_length": end.prompt_tokens}
        text = end.text if end is not None else None
        return {"index": index, "token": self._token(token), "generated_text": text, "details": details}

    def whole(self, end: End, *, has_details: bool) -> Mapping[str, Any]:
        """As `Schema`."""
        if not has_details:
            return {"generated_text": end.text}
        tokens = [self._token(token) for token in end.tokens or ()]
        return {"generated_text": end.text, "details": {**self._details(end), "prefill": [], "tokens": tokens}}

    def broken(self, text: str) -> Mapping[str, Any]:
        """As `Schema`."""
        return {"error": text, "error_type": "generation"}

    @staticmethod
    def _token(token: Token) -> Mapping[str, Any]:
        token_id = UNKNOWN_ID if token.id is None else token.id
        return {"id": token_id, "text": token.text, "logprob": token.log_prob, "special": False}

    @staticmethod
    def _details(end: End) -> Mapping[str, Any]:
        count = UNKNOWN_ID if end.generated_tokens is None else end.generated_tokens
        return {"finish_reason": end.finish_reason or UNKNOWN_REASON, "generated_tokens": count, "seed": end.seed}


def framed(value: Mapping[str, Any], content_type: str) -> bytes:
    """One line of a stream. TGI and LMI send no `[DONE]`: a client of theirs could not read it."""
    line = orjson.dumps(value)
    return b"data: " + line + b"\n\n" if content_type == SSE else line + b"\n"


def dynamic_whole(ends: Sequence[End]) -> Sequence[Mapping[str, Any]]:
    """The answer to a list of prompts, in their order."""
    return [{"generated_text": end.text} for end in ends]
