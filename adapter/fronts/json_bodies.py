"""JSON of a stranger as values, or the error that says what is wrong with it."""

from __future__ import annotations

import json
from typing import Any, TypeVar

import msgspec
import orjson

from adapter.fronts.failures import HttpError

Result = TypeVar("Result")


def parsed(text: bytes) -> Any:
    """
    A JSON text; NaN and infinities may stand in it, as Triton writes them.

    Raises:
        HttpError: 400: no JSON, or nested deeper than 1,024 levels.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if b"NaN" not in text and b"Infinity" not in text:
            raise HttpError(400, f"the body is no JSON: {error}") from None
    try:
        value = json.loads(text.decode())
        orjson.dumps(value)  # no half of a pair in a text, no whole number beyond 64 bits
    except (ValueError, TypeError, RecursionError) as error:
        raise HttpError(400, f"the body is no JSON: {error}") from None
    return value


def structured(kind: type[Result], body: bytes) -> Result:
    """A body of JSON as this struct; no body is an empty object. Raises HttpError: 400."""
    try:
        return msgspec.json.decode(body.strip() or b"{}", type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise HttpError(400, f"the body is no such request: {error}") from None
