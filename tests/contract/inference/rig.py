"""Tensors and requests, in short."""

from __future__ import annotations

import struct
from contextlib import aclosing
from typing import Any

from adapter.inference import split
from adapter.triton.inference.client import TritonInference
from tests.messages import Tensor, tensors_of, texts
from tests.messages import request_of as of

__all__ = ["all_of", "numbers", "of", "prompt", "texts", "wait", "words"]


def numbers(name: str, datatype: str, *values: float, shape: tuple[int, ...] | None = None) -> Tensor:
    """A tensor of INT32, UINT32, FP32 or BOOL."""
    code = {"INT32": "i", "UINT32": "I", "FP32": "f", "BOOL": "?"}[datatype]
    return Tensor(name, datatype, shape or (len(values),), struct.pack(f"<{len(values)}{code}", *values))


def prompt(model: str, text: str = "a bc", sampling: str = "{}", **more: Any) -> Any:
    """Of the imitated vLLM: a stream."""
    return of(model, texts("text_input", text), numbers("stream", "BOOL", True), texts("sampling_parameters", sampling), **more)


def wait(seconds: float, **more: Any) -> Any:
    """Of `waiter`."""
    return of("waiter", numbers("SECONDS", "FP32", seconds), **more)


def words(response: Any, name: str = "text_output") -> list[str]:
    """The texts of an output of BYTES."""
    return [text.decode() for text in split(next(tensor.data for tensor in tensors_of(response) if tensor.name == name))]


async def all_of(inference: TritonInference, request: Any) -> list[Any]:
    """Every answer of a stream."""
    async with aclosing(inference.stream(request)) as answers:
        return [answer async for answer in answers]
