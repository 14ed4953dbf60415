"""
From a backend's answers to tokens, text and the reason of the end. Pure.

One line of a stream is one token. Where an answer holds several and their own texts do not join to its text (a character may be split
among tokens), the last of them has all of it. Nothing is invented: what nobody told is None.
"""

from __future__ import annotations

import codecs
from collections.abc import Sequence
from dataclasses import replace

from adapter.fronts.llm.backends import Piece, Token
from adapter.fronts.llm.parameters import Wishes

_TAIL = 1024
"""Characters of the last tokens, beside the longest stop sequence, in which a stop sequence is looked for."""
_HALF = "\ufffd".encode()
"""Stands at the end of a text whose last character is not all there yet; the next answer has another one in its place."""


class Collector:
    """Takes the pieces of one generation, in order, and says what is known of all of them."""

    def __init__(self, prompt: str, wishes: Wishes, *, is_cumulative: bool, repeats_prompt: bool, keeps_tokens: bool) -> None:
        self.prompt = prompt
        self.seed = wishes.seed
        self.tokens: list[Token] | None = [] if keeps_tokens else None
        self.prompt_tokens: int | None = None
        self.is_over = False
        """The backend has said why it ended, or that this was its last answer."""
        self._wishes = wishes
        self._is_cumulative = is_cumulative
        self._prefix = prompt.encode() if repeats_prompt else b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._seen = b""
        self._texts: list[str] = []
        self._tail = ""
        self._tail_length = _TAIL + max(map(len, wishes.stops), default=0)
        self._last_id: int | None = None
        self._counted: int | None = None
        """Tokens of the answers that tell."""
        self._is_uncounted = False
        """An answer with a text did not tell."""
        self._reason: str | None = None
        self._stop: str | None = None

    def take(self, piece: Piece, *, is_final: bool) -> Sequence[Token]:
        """The tokens of one answer; their texts are what the caller is to see."""
        self.is_over = is_final or piece.reason is not None
        text = self._decoder.decode(self._delta(piece.text), self.is_over)
        tokens = _with_texts(piece.tokens, text)
        count = piece.output_tokens if piece.output_tokens is not None else None if piece.tokens is None else len(piece.tokens)
        if count is not None:
            self._counted = (self._counted or 0) + count
        elif text:
            self._is_uncounted = True
        self._reason = piece.reason or self._reason
        self._stop = piece.stop if piece.stop is not None else self._stop
        self.prompt_tokens = piece.prompt_tokens if piece.prompt_tokens is not None else self.prompt_tokens
        for token in piece.tokens or ():
            self._tail = (self._tail + (token.text or ""))[-self._tail_length :]
            self._last_id = token.id
        self._texts.append(text)
        if self.tokens is not None:
            self.tokens += tokens
        return tokens

    @property
    def text(self) -> str:
        """With the prompt before it, where that was asked for."""
        return (self.prompt if self._wishes.has_prompt_in_text else "") + "".join(self._texts)

    @property
    def generated_tokens(self) -> int | None:
        """Their number; None: nobody told."""
        return None if self._is_uncounted else self._counted

    def _delta(self, text: bytes) -> bytes:
        if not self._is_cumulative:
            prefix = b"" if self._seen else self._prefix
            self._seen = self._seen or text
            return text.removeprefix(prefix)
        text = text.removeprefix(self._prefix)
        while not self.is_over and text.endswith(_HALF):
            text = text.removesuffix(_HALF)
        delta = text.removeprefix(self._seen)
        self._seen = text if text.startswith(self._seen) else self._seen + text
        return delta

    @property
    def finish_reason(self) -> str | None:
        """
        `length`, `eos_token`, `stop_sequence`; None: nobody told. It is the backend's word; without one the count may say it.

        A count that equals the limit is that; one below it is the end-of-sequence token, where nothing else was asked to stop it.
        """
        if self._reason == "length":
            return "length"
        if self._reason == "stop":
            return self._why_stopped()
        if self._reason is not None or self.generated_tokens is None:
            return None
        if self.generated_tokens >= self._wishes.max_new_tokens:
            return "length"
        return None if self._has_stops else "eos_token"

    @property
    def _has_stops(self) -> bool:
        return bool(self._wishes.stops or self._wishes.given.get("stop_token_ids"))

    def _why_stopped(self) -> str | None:
        """`stop` is the end-of-sequence token, or a stop sequence: the backend says which, or its last tokens show it."""
        if self._stop is not None:
            return "stop_sequence" if self._stop else "eos_token"
        if not self._has_stops:
            return "eos_token"
        if self._last_id is None:
            return None
        stop_ids = self._wishes.given.get("stop_token_ids") or ()
        is_met = any(stop in self._tail for stop in self._wishes.stops)
        return "stop_sequence" if is_met or (isinstance(stop_ids, Sequence) and self._last_id in stop_ids) else "eos_token"


def _with_texts(tokens: Sequence[Token] | None, text: str) -> Sequence[Token]:
    if not tokens:
        return [Token(None, text, None)] if text else []
    if "".join(token.text or "" for token in tokens) == text and all(token.text is not None for token in tokens):
        return tokens
    return [replace(token, text="") for token in tokens[:-1]] + [replace(tokens[-1], text=text)]
