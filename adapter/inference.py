"""
The nouns of inference: tensors, requests, answers, models, failures; and the one table of datatypes.

A tensor's elements are raw bytes as gRPC carries them (little endian, row-major; BYTES: each element after its length in 4 bytes).
Nothing here knows gRPC or HTTP. Source of names and types: the V2 predict protocol, its gRPC part; of raw BYTES: Triton's binary data
extension.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import chain, islice
from typing import ClassVar

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
_LENGTH = struct.Struct("<I")
_BATCH = 4096
"""Elements joined at once: a join takes 80 bytes for each of its parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """One input or output."""

    name: str
    datatype: str
    """One of `DATATYPES`; of an answer also another one."""
    shape: Sequence[int]
    data: bytes
    parameters: Mapping[str, Parameter] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """One inference."""

    model: str
    inputs: Sequence[Tensor]
    version: str = ""
    id: str = ""
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    outputs: Mapping[str, Mapping[str, Parameter]] = field(default_factory=dict)
    """Name → parameters. None named: all that the model has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InferResponse:
    """One answer; a decoupled model gives any number of them."""

    model: str
    version: str
    id: str
    parameters: Mapping[str, Parameter]
    outputs: Sequence[Tensor]
    is_final: bool = True
    """The last of a stream. One that is final may have no outputs: then the stream had ended before it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """What a model says of one of its inputs or outputs."""

    name: str
    datatype: str
    shape: Sequence[int]
    """-1 for a dimension of any size; the batch dimension included, where the model has one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """ModelMetadata, and what of ModelConfig decides how a model is asked."""

    name: str
    versions: Sequence[str]
    platform: str
    inputs: Sequence[TensorInfo]
    outputs: Sequence[TensorInfo]
    is_decoupled: bool = False
    max_batch_size: int = 0
    optional_inputs: frozenset[str] = frozenset()


class Failure(Enum):
    """What a caller may conclude from a failed inference. Each front has its own status for each."""

    INVALID = "invalid"
    """The caller's mistake: Triton says INVALID_ARGUMENT, OUT_OF_RANGE, ALREADY_EXISTS or FAILED_PRECONDITION."""
    NOT_FOUND = "not_found"
    """No such model or version, or it is not loaded."""
    UNAVAILABLE = "unavailable"
    """Triton is away or stopping, or a queue is full: the same request may work later."""
    UNSUPPORTED = "unsupported"
    """UNIMPLEMENTED: as a decoupled model that is asked for one answer."""
    DENIED = "denied"
    """PERMISSION_DENIED, UNAUTHENTICATED."""
    TIMEOUT = "timeout"
    """DEADLINE_EXCEEDED, or CANCELLED by the server."""
    INTERNAL = "internal"
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
