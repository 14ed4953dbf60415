"""Tensors and requests, in short."""

from __future__ import annotations

import struct
from contextlib import aclosing
from typing import Any

from adapter.inference import InferRequest, InferResponse, Tensor
from adapter.triton.inference.client import TritonInference


def texts(name: str, *values: str | bytes, shape: tuple[int, ...] | None = None) -> Tensor:
    """A tensor of BYTES."""
    data = b"".join(struct.pack("<I", len(value)) + value for value in (v.encode() if isinstance(v, str) else v for v in values))
    return Tensor(name=name, datatype="BYTES", shape=shape or (len(values),), data=data)


def numbers(name: str, datatype: str, *values: float, shape: tuple[int, ...] | None = None) -> Tensor:
    """A tensor of INT32, UINT32, FP32 or BOOL."""
    code = {"INT32": "i", "UINT32": "I", "FP32": "f", "BOOL": "?"}[datatype]
    return Tensor(name=name, datatype=datatype, shape=shape or (len(values),), data=struct.pack(f"<{len(values)}{code}", *values))


def of(model: str, *inputs: Tensor, **more: Any) -> InferRequest:
    """A request."""
    return InferRequest(model=model, inputs=inputs, **more)


def prompt(model: str, text: str = "a bc", sampling: str = "{}", **more: Any) -> InferRequest:
    """Of the imitated vLLM: a stream."""
    return of(model, texts("text_input", text), numbers("stream", "BOOL", True), texts("sampling_parameters", sampling), **more)


def wait(seconds: float, **more: Any) -> InferRequest:
    """Of `waiter`."""
    return of("waiter", numbers("SECONDS", "FP32", seconds), **more)


def words(response: InferResponse, name: str = "text_output") -> list[str]:
    """The texts of an output of BYTES."""
    data = next(tensor.data for tensor in response.outputs if tensor.name == name)
    found, at = [], 0
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at)
        found.append(data[at + 4 : at + 4 + length].decode())
        at += 4 + length
    return found


async def all_of(inference: TritonInference, request: InferRequest) -> list[InferResponse]:
    """Every answer of a stream."""
    async with aclosing(inference.stream(request)) as answers:
        return [answer async for answer in answers]
