"""
Generations under way: a request to the model, its answers as they come, tokens out of them.

Leaving one early cancels it in the model. Generations do not wait for each other: each is a call of its own.

One line of a stream is one token. Where an answer holds several and their own texts do not join to its text (a character may be split
among tokens), the last of them has all of it. Nothing is invented: what the backend did not tell is None.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator, Awaitable, Iterable, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, TypeVar

from adapter.fronts.llm.backends import Piece, Token, profile_of
from adapter.fronts.llm.parameters import Wishes
from adapter.inference import ModelInfo, is_final
from adapter.triton.inference.client import TritonInference

_HALF = "\ufffd".encode()
"""Stands at the end of a text whose last character is not all there yet; the next answer has another one in its place."""


class Collector:
    """Takes the pieces of one generation, in order, and says what is known of all of them."""

    def __init__(self, prompt: str, wishes: Wishes, *, is_cumulative: bool, repeats_prompt: bool, keeps_tokens: bool) -> None:
        self.prompt = prompt
        self.seed = wishes.given.get("seed")
        self.tokens: list[Token] | None = [] if keeps_tokens else None
        self.prompt_tokens: int | None = None
        self.is_over = False
        """The backend has said why it ended, or that this was its last answer."""
        self.wishes = wishes
        self._is_cumulative = is_cumulative
        self._prefix = prompt.encode() if repeats_prompt else b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._seen = b""
        self._texts: list[str] = []
        self._told: list[Token] = []
        """As the backend told them: unlike the text, they have what has stopped it."""
        self._counts: list[Any] = []
        """Tokens of each answer that tells, or has a text; None: it does not tell."""
        self._reason: str | None = None
        self._stop: str | None = None

    def take(self, piece: Piece, *, is_final: bool) -> Sequence[Token]:
        """The tokens of one answer; their texts are what the caller is to see."""
        self.is_over = is_final or piece.reason is not None
        text = self._decoder.decode(self._delta(piece.text), self.is_over)
        tokens = _with_texts(piece.tokens, text)
        count = piece.output_tokens if piece.output_tokens is not None else None if piece.tokens is None else len(piece.tokens)
        if count is not None or text:
            self._counts.append(count)
        self._reason = piece.reason or self._reason
        self._stop = piece.stop if piece.stop is not None else self._stop
        self.prompt_tokens = piece.prompt_tokens if piece.prompt_tokens is not None else self.prompt_tokens
        self._told += piece.tokens or ()
        self._texts.append(text)
        if self.tokens is not None:
            self.tokens += tokens
        return tokens

    @property
    def text(self) -> str:
        """With the prompt before it, where that was asked for."""
        return (self.prompt if self.wishes.has_prompt_in_text else "") + "".join(self._texts)

    @property
    def generated_tokens(self) -> int | None:
        """Their number; None: the backend did not tell."""
        return sum(self._counts) if self._counts and None not in self._counts else None

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
        `length`, `eos_token`, `stop_sequence`; None: the backend did not tell. It is the backend's word; without one the count may say it.

        A count that equals the limit is that; one below it is the end-of-sequence token, where nothing else was asked to stop it.
        """
        if self._reason == "length":
            return "length"
        if self._reason == "stop":
            return self._why_stopped()
        if self._reason is not None or self.generated_tokens is None:
            return None
        if self.generated_tokens >= self.wishes.max_new_tokens:
            return "length"
        return None if self._has_stops else "eos_token"

    @property
    def _has_stops(self) -> bool:
        return bool({"stop_sequences", "stop_token_ids"} & self.wishes.given.keys())

    def _why_stopped(self) -> str | None:
        """`stop` is the end-of-sequence token, or a stop sequence: the backend says which, or its tokens show it."""
        if self._stop is not None:
            return "stop_sequence" if self._stop else "eos_token"
        if not self._has_stops:
            return "eos_token"
        if not self._told or self._told[-1].id is None:
            return None
        text, given = "".join(token.text or "" for token in self._told), self.wishes.given
        is_met = any(stop in text for stop in given.get("stop_sequences", ())) or self._told[-1].id in given.get("stop_token_ids", ())
        return "stop_sequence" if is_met else "eos_token"


def _with_texts(tokens: Sequence[Token] | None, text: str) -> Sequence[Token]:
    if not tokens:
        return [Token(None, text, None)] if text else []
    if "".join(token.text or "" for token in tokens) == text and all(token.text is not None for token in tokens):
        return tokens
    return [replace(token, text="") for token in tokens[:-1]] + [replace(tokens[-1], text=text)]


T = TypeVar("T")
Lines = AsyncGenerator[tuple[Token, Collector | None], None]
"""Tokens of one generation; the last one has its end."""
Rows = Sequence[tuple[Sequence[Token], Collector]]
"""Of each prompt: its next tokens, and all that it has by now."""
AT_ONCE = 8
"""Generations of one request that run at a time, where its model takes one prompt a request."""


async def _steps(inference: TritonInference, info: ModelInfo, wishes: Wishes, prompts: Sequence[str]) -> AsyncGenerator[Rows, None]:
    """
    What each answer brings; after the last one, or without any, once more nothing. Leaving it cancels the generation.

    Raises:
        HttpError: 400: this model cannot be asked so.
        InferenceFailed: it cannot be asked, or has failed.
    """
    profile = profile_of(info)
    is_stream = info.is_decoupled and (bool(wishes.is_stream) or wishes.has_details)  # only a stream shows the text of each token
    keeps_tokens = wishes.has_details and not wishes.is_stream and (is_stream or profile.level(info) != "text")
    has_details = wishes.has_details or (bool(wishes.is_stream) and not wishes.is_dynamic)
    request = profile.request(info, prompts, replace(wishes, is_stream=is_stream, has_details=has_details))
    form = {"is_cumulative": profile.is_cumulative, "repeats_prompt": profile.repeats_prompt(info), "keeps_tokens": keeps_tokens}
    collectors = [Collector(prompt, wishes, **form) for prompt in prompts]
    async with aclosing(inference.stream(request) if info.is_decoupled else _whole(inference, request)) as answers:
        async for answer in answers:
            pairs = zip(answer.outputs, answer.raw_output_contents, strict=True)
            outputs = {output.name: (output.datatype, data) for output, data in pairs}
            found: list[tuple[Sequence[Token], Collector]] = []
            for row, collector in enumerate(collectors):
                tokens: Sequence[Token] = ()
                if not collector.is_over:
                    piece = profile.piece(outputs, row, len(collectors)) if outputs else Piece(text=b"")
                    tokens = collector.take(piece, is_final=is_final(answer))
                found.append((tokens, collector))
            yield found
    yield [((), collector) for collector in collectors]


async def lines_of(inference: TritonInference, info: ModelInfo, wishes: Wishes, prompt: str) -> Lines:
    """
    The tokens of a generation of one prompt, which begins when the first of them is wanted. Raises as `_steps`.

    They end as soon as the backend has told why it ended: its last answer may be empty, come long after that, or fail then.
    """
    async with aclosing(_steps(inference, info, wishes, [prompt])) as steps:
        async for ((tokens, collector),) in steps:
            for token in tokens[:-1]:
                yield token, None
            if tokens and not collector.is_over:
                yield tokens[-1], None
            elif collector.is_over:
                break
    yield tokens[-1] if tokens else Token(None, "", None), collector


async def texts(inference: TritonInference, info: ModelInfo, wishes: Wishes) -> Sequence[Collector]:
    """
    The answers to all prompts, in their order; one failure fails them all, and cancels the others.

    Prompts go together as far as the model batches, else beside each other, `AT_ONCE` of them.

    Raises:
        HttpError, InferenceFailed: as `_steps`.
    """
    most = max(info.config.max_batch_size, 1) if not info.is_decoupled else 1
    places = asyncio.Semaphore(AT_ONCE)

    async def ends(prompts: Sequence[str]) -> Sequence[Collector]:
        async with places, aclosing(_steps(inference, info, wishes, prompts)) as steps:
            async for rows in steps:
                found = [collector for _, collector in rows]
        return found

    parts = await all_of(ends(wishes.prompts[start : start + most]) for start in range(0, len(wishes.prompts), most))
    return [end for part in parts for end in part]


def total(counts: Iterable[int | None]) -> int | None:
    """Of all; None: one is not known."""
    known = list(counts)
    return None if None in known else sum(filter(None, known))


async def all_of(works: Iterable[Awaitable[T]]) -> Sequence[T]:
    """The results of all, in their order. The first failure cancels the others; it is raised when all have ended."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def merged(sources: Sequence[Lines]) -> AsyncGenerator[tuple[int, Token, Collector | None], None]:
    """The tokens of all, each as soon as it is there, with the number of its source. Raises what the first one raises."""
    waiting = {asyncio.ensure_future(anext(source)): number for number, source in enumerate(sources)}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                number = waiting.pop(task)
                with suppress(StopAsyncIteration):
                    token, end = task.result()
                    waiting[asyncio.ensure_future(anext(sources[number]))] = number
                    yield number, token, end
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)


async def _whole(inference: TritonInference, request: Any) -> AsyncGenerator[Any, None]:
    yield await inference.infer(request)
