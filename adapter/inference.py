"""
Inference in Triton's own messages, ModelInferRequest and ModelInferResponse: what is put in and read; failures; the table of datatypes.

A tensor's elements are raw bytes as gRPC carries them (little endian, row-major; BYTES: each element after its length in 4 bytes).
Nothing here knows gRPC's calls or HTTP. Source of names and types: the V2 predict protocol, its gRPC part; of raw BYTES: Triton's
binary data extension.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from typing import Any, ClassVar

from adapter.errors import AdapterError

DATATYPES: Mapping[str, tuple[str, str]] = {
    "BOOL": ("?", "bool_contents"), "INT8": ("b", "int_contents"), "INT16": ("h", "int_contents"), "INT32": ("i", "int_contents"),
    "INT64": ("q", "int64_contents"), "UINT8": ("B", "uint_contents"), "UINT16": ("H", "uint_contents"), "UINT32": ("I", "uint_contents"),
    "UINT64": ("Q", "uint64_contents"), "FP16": ("e", ""), "BF16": ("H", ""), "FP32": ("f", "fp32_contents"),
    "FP64": ("d", "fp64_contents"), "BYTES": ("", "bytes_contents"),
}  # fmt: skip
"""
Datatype → code of an element in `struct` and numpy (of BF16 its bits, of BYTES none), and field of InferTensorContents (FP16 and BF16
have none).
"""
Parameter = bool | int | float | str
"""Value of a parameter of a request, a tensor or a response."""
FINAL = "triton_final_response"
"""Parameter of a response: whether it is the last one. Source: Triton's `docs/protocol/extension_parameters`, decoupled models."""
_PRIORITY = "priority"
"""The only parameter that Triton takes as UINT64. Source: Triton server `grpc/infer_handler.cc`, `SetInferenceRequestMetadata`."""
_LENGTH = struct.Struct("<I")
_BATCH = 4096
"""Elements joined at once: a join takes 80 bytes for each of its parts."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a model says of itself."""

    metadata: Any
    """ModelMetadataResponse; a shape has -1 for a dimension of any size, and the batch dimension, where the model has one."""
    config: Any
    """ModelConfig; an empty one where the server has none."""

    @property
    def is_decoupled(self) -> bool:
        """Whether it gives any number of answers."""
        return bool(self.config.model_transaction_policy.decoupled)


class Failure(Enum):
    """What a caller may conclude from a failed inference; the value is HTTP's status for it, where a front has no other one."""

    INVALID = 400
    """The caller's mistake: Triton says INVALID_ARGUMENT, OUT_OF_RANGE, ALREADY_EXISTS or FAILED_PRECONDITION."""
    NOT_FOUND = 404
    """No such model or version, or it is not loaded."""
    UNAVAILABLE = 503
    """Triton is away or stopping, or a queue is full: the same request may work later."""
    UNSUPPORTED = 501
    """UNIMPLEMENTED: as a decoupled model that is asked for one answer."""
    DENIED = 403
    """PERMISSION_DENIED, UNAUTHENTICATED."""
    TIMEOUT = 504
    """DEADLINE_EXCEEDED, or CANCELLED by the server."""
    INTERNAL = 500
    """The model or its backend has failed."""


class InferenceFailed(AdapterError):
    """An inference, or a question about a model, that brought no answer. The text is the server's own, in one line."""

    reason: ClassVar[str] = "inference"

    def __init__(self, failure: Failure, text: str) -> None:
        super().__init__(text)
        self.failure = failure


def joined(elements: Iterable[bytes]) -> bytes:
    """Elements of BYTES → raw form."""
    parts = chain.from_iterable((_LENGTH.pack(len(element)), element) for element in elements)
    return b"".join(iter(lambda: b"".join(islice(parts, _BATCH)), b""))


def split(raw: bytes) -> list[bytes]:
    """Raw form → elements of BYTES. Raises ValueError: their lengths do not fit; says where."""
    found, place = [], 0
    while place < len(raw):
        if place + _LENGTH.size > len(raw):
            raise ValueError("BYTES end in the middle of a length")
        (length,) = _LENGTH.unpack_from(raw, place)
        place += _LENGTH.size
        if place + length > len(raw):
            raise ValueError("BYTES end in the middle of an element")
        found.append(raw[place : place + length])
        place += length
    return found


def add_input(request: Any, name: str, datatype: str, shape: Sequence[int], data: bytes) -> Any:
    """Give a request one more input, which is returned; `data` is raw."""
    request.raw_input_contents.append(data)
    return request.inputs.add(name=name, datatype=datatype, shape=shape)


def set_parameters(message: Any, parameters: Mapping[str, Parameter]) -> None:
    """Of a request, an input or an output."""
    target = message.parameters
    for name, value in parameters.items():
        if isinstance(value, bool):
            target[name].bool_param = value
        elif isinstance(value, str):
            target[name].string_param = value
        elif isinstance(value, int) and -(2**63) <= value < 2**63:
            target[name].int64_param = value
        elif name == _PRIORITY and isinstance(value, int) and 0 <= value < 2**64:
            target[name].uint64_param = value
        else:
            target[name].double_param = float(value)  # also a larger integer, as Triton's own HTTP front gives it


def parameters_of(message: Any) -> dict[str, Parameter]:
    """Of a response or an output, without what Triton tells us alone."""
    kinds = {name: value.WhichOneof("parameter_choice") for name, value in message.parameters.items() if name != FINAL}
    return {name: getattr(message.parameters[name], kind) for name, kind in kinds.items() if kind is not None}


def is_final(response: Any) -> bool:
    """Whether a response is the last one. One that is may have no outputs: then the stream had ended before it."""
    return FINAL in response.parameters and bool(response.parameters[FINAL].bool_param)
