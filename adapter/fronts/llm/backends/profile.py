"""What is asked of a backend, whichever it is, and what its answers tell. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from adapter.fronts.llm.parameters import Wishes
from adapter.inference import ModelInfo, Parameter, Tensor

PROMPT, TEXT = "text_input", "text_output"
"""The input and the output that every language model has."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token, as far as its backend tells of it."""

    id: int | None
    text: str | None
    """Of an answer not yet put together: None where only the text of all tokens is known."""
    log_prob: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """What one answer brought for one prompt."""

    text: bytes
    tokens: Sequence[Token] | None = None
    """None: the backend does not tell."""
    reason: str | None = None
    """Why it was the last one: the backend's own word, or None."""
    stop: str | None = None
    """The stop sequence that was met; empty: it was the end-of-sequence token. None: not told."""
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    """Of this answer alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What of a generation its caller will see, so the backend must tell."""

    is_stream: bool
    """An answer a token."""
    has_tokens: bool
    has_reason: bool


Request = tuple[Sequence[Tensor], Mapping[str, Parameter]]
"""Inputs, and parameters of the request."""


class Profile(Protocol):
    """One kind of backend."""

    name: str
    is_cumulative: bool
    """Each answer has the text from the beginning."""

    def level(self, info: ModelInfo) -> str:
        """What it tells of tokens: `ids` (and log probabilities), `log_probs`, or `text`."""
        ...

    def request(self, info: ModelInfo, prompts: Sequence[str], wishes: Wishes, question: Question) -> Request:
        """
        The inputs for these prompts, a row for each.

        Raises:
            BadParameter: the backend does not have a parameter that was given.
        """
        ...

    def piece(self, outputs: Mapping[str, Tensor], row: int, rows: int) -> Piece:
        """What an answer has for one row. Raises InferenceFailed: it cannot be read."""
        ...

    def repeats_prompt(self, info: ModelInfo) -> bool:
        """Whether its text may begin with the prompt."""
        ...
