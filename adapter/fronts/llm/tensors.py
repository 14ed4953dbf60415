"""
Values as tensors of a model that says what it takes, and values in its answers, which may hold anything. Pure.

Types and the number of dimensions are read in the model's metadata, so one code serves batched backends (`[rows, n]`) and others (`[n]`).
Of an answer, what makes no sense is None, as what is not there; only a text that is missing fails the generation: a client must never
get the text of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from adapter.fronts.failures import HttpError
from adapter.fronts.llm.parameters import BadParameter
from adapter.fronts.tensors import numbers, packed
from adapter.inference import DATATYPES, Failure, InferenceFailed, ModelInfo, add_input, split
from adapter.stubs import service_pb2

T = TypeVar("T")
Outputs = Mapping[str, tuple[str, bytes]]
"""Of an answer: name → datatype and raw form."""
MOST = 2**31 - 1
"""Largest token id, and most tokens of an answer: more make no sense, and JSON of ours ends at 64 bits."""


class Inputs:
    """Collects the inputs of one request; a model that batches has a row for each prompt."""

    def __init__(self, info: ModelInfo, rows: int) -> None:
        self.request = service_pb2.ModelInferRequest(model_name=info.metadata.name)
        self._known = {entry.name: entry for entry in info.metadata.inputs}
        self._batch = int(info.config.max_batch_size > 0)
        """Dimensions before those of a row."""
        self._rows = rows

    def first(self, *names: str) -> str | None:
        """The first of these names that the model takes."""
        return next((name for name in names if name in self._known), None)

    def put(self, name: str, value: Any, *, parameter: str = "", rows: bool = False) -> None:
        """
        Give the model this input.

        Args:
            name: of the input; the model takes it.
            value: one, or several, of each row; with `rows` one for each of them.
            parameter: what the caller calls it.
            rows: as above.

        Raises:
            BadParameter: the model's type cannot have such a value, or its shape not that number of values.
        """
        entry = self._known[name]
        dimensions = entry.shape[self._batch :]
        values = list(value) if isinstance(value, list | tuple) else [value]
        count = 1 if rows else len(values)
        if len(dimensions) == 1 and dimensions[0] not in (-1, count):
            raise BadParameter(parameter or name, f"the model takes {dimensions[0]}, not {count}")
        shape = [self._rows] * self._batch + [1] * (len(dimensions) - 1) + [count]
        elements = values if rows else values * self._rows
        if entry.datatype != "BOOL":
            elements = [int(value) if isinstance(value, bool) else value for value in elements]
        try:
            data = packed(name, entry.datatype, elements, len(elements))
        except (HttpError, KeyError) as error:
            raise BadParameter(parameter or name, f"the model takes {entry.datatype}, which cannot be this value") from error
        add_input(self.request, name, entry.datatype, shape, data)


class Row:
    """What an answer has for one of its rows."""

    def __init__(self, outputs: Outputs, row: int, rows: int) -> None:
        self._outputs = outputs
        self._row = row
        self.rows = rows

    def text(self, name: str) -> bytes:
        """
        A text that a row cannot lack; empty where the answer has none for any.

        Raises:
            InferenceFailed: the texts are not as many as the rows, or cut off.
        """
        texts = self.texts(name)
        text = self._first(texts)
        if text is None and texts:
            raise InferenceFailed(Failure.INTERNAL, f"the model has answered {self.rows} prompts with {len(texts)} texts")
        return text or b""

    def raw(self, name: str) -> bytes | None:
        """Any other text, as it is."""
        return self._first(self.texts(name))

    def word(self, name: str) -> str | None:
        """A text that names something; empty for `None` in Python's words."""
        found = self.raw(name)
        return None if found is None else found.decode("utf-8", "replace") if found != b"None" else ""

    def count(self, name: str) -> int | None:
        """A number of tokens."""
        value = self._first(self.numbers(name))
        return int(value) if value is not None and 0 <= value <= MOST else None

    def texts(self, name: str) -> list[bytes]:
        """The elements of an output of BYTES, of all rows; none of another one. Raises InferenceFailed: it is cut off."""
        datatype, data = self._outputs.get(name, ("", b""))
        try:
            return split(data) if datatype == "BYTES" else []
        except ValueError as error:
            raise InferenceFailed(Failure.INTERNAL, f"the model's output {name} is cut off") from error

    def numbers(self, name: str) -> list[float]:
        """All numbers of an output, of all rows; none of another one. The type is the answer's own: backends declare others."""
        datatype, data = self._outputs.get(name, ("", b""))
        if datatype == "BYTES" or datatype not in DATATYPES:
            return []
        return [*numbers(datatype, data).tolist()]

    def _first(self, values: Sequence[T]) -> T | None:
        """The first value of this row; None: there is none, or it cannot be told which it is."""
        each, rest = divmod(len(values), self.rows)
        return values[self._row * each] if each and not rest else None
