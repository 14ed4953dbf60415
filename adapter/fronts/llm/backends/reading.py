"""
Values in the answers of a backend, which may hold anything. Pure.

What makes no sense is None, as what is not there; only a text that is missing fails the generation: nobody may get another one's.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from adapter.fronts.llm.tensors import texts_of
from adapter.inference import Failure, InferenceFailed, Tensor

T = TypeVar("T")
_MOST = 2**31 - 1
"""Largest token id, and most tokens of an answer: more make no sense, and JSON of ours ends at 64 bits."""


def first(values: Sequence[T], row: int, rows: int) -> T | None:
    """The first value of a row; None: there is none, or nobody can say which it is."""
    each, rest = divmod(len(values), rows)
    return values[row * each] if each and not rest else None


def text_of_row(tensor: Tensor | None, row: int, rows: int) -> bytes:
    """
    The text of a row; empty where the answer has none for any.

    Raises:
        InferenceFailed: the texts are not as many as the rows, or cut off.
    """
    texts = texts_of(tensor)
    text = first(texts, row, rows)
    if text is None and texts:
        raise InferenceFailed(Failure.INTERNAL, f"the model has answered {rows} prompts with {len(texts)} texts")
    return text or b""


def word(text: bytes | None) -> str | None:
    """A text that names something; `None` in Python's words is none."""
    found = text.decode("utf-8", "replace") if text is not None else ""
    return None if found in ("", "None") else found


def count(value: float | None) -> int | None:
    """A number of tokens."""
    return int(value) if value is not None and 0 <= value <= _MOST else None


def token_id(text: str) -> int | None:
    """A token id that is written as a text. Raises ValueError: it is no number."""
    number = int(text)
    return number if 0 <= number <= _MOST else None


def finite(value: Any) -> float | None:
    """A log probability."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return float(value) if is_number and -_MOST <= value <= _MOST else None
