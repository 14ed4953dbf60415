"""
Values as tensors of a model that says what it takes, and tensors as values. Pure.

Types and the number of dimensions are read in the model's metadata, so one code serves batched backends (`[rows, n]`) and others (`[n]`).
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from adapter.fronts.llm.parameters import BadParameter
from adapter.fronts.strings import joined, split
from adapter.inference import Failure, InferenceFailed, ModelInfo, Tensor

_CODES = {
    "BOOL": "?", "INT8": "b", "INT16": "h", "INT32": "i", "INT64": "q", "UINT8": "B", "UINT16": "H", "UINT32": "I", "UINT64": "Q",
    "FP16": "e", "FP32": "f", "FP64": "d",
}  # fmt: skip


class Inputs:
    """Collects the inputs of one request; a model that batches has a row for each prompt."""

    def __init__(self, info: ModelInfo, rows: int = 1) -> None:
        self._known = {entry.name: entry for entry in info.inputs}
        self._is_batched = info.max_batch_size > 0
        self._rows = rows
        self._tensors: dict[str, Tensor] = {}

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All that was put."""
        return tuple(self._tensors.values())

    def has(self, name: str) -> bool:
        """Whether the model takes it."""
        return name in self._known

    def first(self, *names: str) -> str | None:
        """The first of these names that the model takes."""
        return next((name for name in names if name in self._known), None)

    def put(self, name: str, values: Sequence[Any], *, parameter: str = "", rows: bool = False) -> None:
        """
        Give the model this input.

        Args:
            name: of the input; the model takes it.
            values: of one row, or, with `rows`, one for each row.
            parameter: what the caller calls it.
            rows: as above.

        Raises:
            BadParameter: the model's type cannot have such a value, or its shape not so many.
        """
        entry = self._known[name]
        dimensions = list(entry.shape)[1:] if self._is_batched else list(entry.shape)
        count = 1 if rows else len(values)
        if len(dimensions) == 1 and dimensions[0] not in (-1, count):
            raise BadParameter(parameter or name, f"the model takes {dimensions[0]}, not {count}")
        shape = [1] * (len(dimensions) - 1) + [count]
        if self._is_batched:
            shape = [self._rows, *shape]
        try:
            data = packed(entry.datatype, values if rows else list(values) * self._rows)
        except (struct.error, OverflowError, TypeError) as error:
            raise BadParameter(parameter or name, f"the model takes {entry.datatype}, which cannot be this value") from error
        self._tensors[name] = Tensor(name=name, datatype=entry.datatype, shape=shape, data=data)


def packed(datatype: str, values: Sequence[Any]) -> bytes:
    """Raw bytes. Raises struct.error, OverflowError, TypeError: the type has no such value."""
    if datatype == "BYTES":
        if not all(isinstance(value, str) for value in values):
            raise TypeError("a text is needed")
        return joined(value.encode() for value in values)
    if datatype not in _CODES:
        raise TypeError(datatype)
    return struct.pack(f"<{len(values)}{_CODES[datatype]}", *values)


def texts_of(tensor: Tensor | None) -> list[bytes]:
    """The elements of a BYTES tensor; none of another one. Raises InferenceFailed: it is cut off."""
    if tensor is None or tensor.datatype != "BYTES":
        return []
    try:
        return split(tensor.data)
    except ValueError as error:
        raise InferenceFailed(Failure.INTERNAL, f"the model's output {tensor.name} is cut off") from error


def numbers_of(tensor: Tensor | None) -> list[float]:
    """The elements of a tensor of numbers; none of another one. The type is the answer's own: backends declare others."""
    if tensor is None or tensor.datatype not in _CODES:
        return []
    code = _CODES[tensor.datatype]
    count = len(tensor.data) // struct.calcsize(code)
    return list(struct.unpack_from(f"<{count}{code}", tensor.data))


def by_name(outputs: Sequence[Tensor]) -> Mapping[str, Tensor]:
    """Outputs by their names."""
    return {tensor.name: tensor for tensor in outputs}
