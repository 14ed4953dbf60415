"""
The process that parses large bodies: all that it needs, and no server of HTTP; and what JSON asks for whose form says the schema.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from adapter.fronts.failures import parsed
from adapter.fronts.llm.backends import PROMPT
from adapter.fronts.llm.openai import is_openai, understood
from adapter.fronts.llm.schemas import Lmi
from adapter.fronts.v2.requests import Asked, asked, flat
from adapter.inference import ModelInfo


def answered(work: Callable[..., Any], args: Sequence[Any], body: bytes) -> tuple[bytes, bytes | memoryview]:
    """A failure or a result, pickled, and what was pickled beside it. A failure of `work` goes back to the one who has asked."""
    beside: list[pickle.PickleBuffer] = []
    try:
        first = pickle.dumps((None, work(*args, body)), 5, buffer_callback=beside.append)
    except Exception as error:  # noqa: BLE001 - as the docstring says
        return pickle.dumps((error, None)), b""
    return first, beside[0].raw() if beside else b""


class Load(msgspec.Struct):
    """Of SageMaker's contract."""

    model_name: str
    url: str


def meant(schema: str, info: ModelInfo, language: Lmi, body: bytes) -> tuple[str, Asked | Lmi]:
    """Whose schema a body of JSON has: `infer`, `generate`, `generate_stream`; and what it asks for. Raises HttpError: 400."""
    value = parsed(body)
    if schema == "infer" and isinstance(value, dict):
        inputs = value.get("inputs")
        is_text = isinstance(inputs, str) or (isinstance(inputs, list) and inputs and all(isinstance(entry, str) for entry in inputs))
        if is_text or is_openai(value):
            return schema, understood(language, value)
        if "inputs" not in value and PROMPT in value:
            schema = "generate_stream" if value.get("stream") is True else "generate"
    if schema == "infer":
        return schema, asked(info.metadata.name, "", value, memoryview(b""))
    return schema, flat(info, "", value)
