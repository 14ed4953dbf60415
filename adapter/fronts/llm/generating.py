"""
Generations under way: a request to the model, its answers as they come, tokens out of them.

A generation is begun when its first answer is there: until then a failure can still be a status. Leaving one early cancels it in the
model. Nobody waits behind another: each generation is a call of its own.

One line of a stream is one token. Where an answer holds several and their own texts do not join to its text (a character may be split
among tokens), the last of them has all of it. Nothing is invented: what nobody told is None.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from adapter.fronts.asking import Answers, begun
from adapter.fronts.llm.backends import Piece, Profile, Question, Token, profile_of
from adapter.fronts.llm.parameters import Wishes
from adapter.inference import InferenceFailed, ModelInfo, is_final
from adapter.triton.inference.client import TritonInference

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


T = TypeVar("T")
Lines = AsyncGenerator[tuple[Token, Collector | None], None]
"""Tokens of one generation; the last one has its end."""
AT_ONCE = 8
"""Generations of one request that run at a time, where its model takes one prompt a request."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one HTTP request asks of one model."""

    info: ModelInfo
    prompts: Sequence[str]
    wishes: Wishes
    is_stream: bool
    """The caller wants tokens as they come."""
    is_dynamic: bool = False
    """Of the text alone, nothing else is wanted."""


@dataclass(frozen=True)
class Generation:
    """Some prompts' generation, a row for each, of which the first answer is there."""

    profile: Profile
    collectors: Sequence[Collector]
    answers: Answers
    first: Any
    """None: there is none."""

    async def steps(self) -> AsyncGenerator[Sequence[Sequence[Token]], None]:
        """The tokens of each row, answer by answer. Raises InferenceFailed."""
        if self.first is not None:
            yield self._taken(self.first)
        async for answer in self.answers:
            yield self._taken(answer)

    async def lines(self) -> Lines:
        """
        The tokens of the only row; the last one has the end.

        The backend's last answer may be empty, come long after it has told why it ended, or fail then: nobody has to wait for it, and
        what was said is said.
        """
        (collector,) = self.collectors
        has_ended = False
        try:
            async with aclosing(self.steps()) as steps:
                async for (tokens,) in steps:
                    if has_ended:
                        continue
                    for token in tokens[:-1]:
                        yield token, None
                    has_ended = collector.is_over
                    if tokens or has_ended:
                        yield tokens[-1] if tokens else Token(None, "", None), collector if has_ended else None
        except InferenceFailed:
            if not has_ended:
                raise
        if not has_ended:
            yield Token(None, "", None), collector

    async def ends(self) -> Sequence[Collector]:
        """All of it, of each row. Raises InferenceFailed."""
        async for _ in self.steps():
            pass
        return self.collectors

    def _taken(self, answer: Any) -> Sequence[Sequence[Token]]:
        pairs, rows = zip(answer.outputs, answer.raw_output_contents, strict=True), len(self.collectors)
        outputs = {output.name: (output.datatype, data) for output, data in pairs}
        found: list[Sequence[Token]] = []
        for row, collector in enumerate(self.collectors):
            if collector.is_over:
                found.append(())
                continue
            piece = self.profile.piece(outputs, row, rows) if outputs else Piece(text=b"")
            found.append(collector.take(piece, is_final=is_final(answer)))
        return found


@asynccontextmanager
async def generation(inference: TritonInference, asked: Asked, prompts: Sequence[str]) -> AsyncIterator[Generation]:
    """
    Begin a generation of these prompts; it is cancelled with the context, if it has not ended.

    Raises:
        BadPayload: this model cannot be asked so.
        InferenceFailed: it cannot be asked, or has failed before its first answer.
    """
    info, wishes = asked.info, asked.wishes
    profile = profile_of(info)
    has_details = wishes.has_details and not asked.is_dynamic
    question = Question(
        is_stream=info.is_decoupled and (asked.is_stream or has_details),  # details have each token's text, which only a stream shows
        has_details=has_details or (asked.is_stream and not asked.is_dynamic),
    )
    request = profile.request(info, prompts, wishes, question)
    collectors = [
        Collector(
            prompt,
            wishes,
            is_cumulative=profile.is_cumulative,
            repeats_prompt=profile.repeats_prompt(info),
            keeps_tokens=question.has_details and not asked.is_stream and (question.is_stream or profile.level(info) != "text"),
        )
        for prompt in prompts
    ]
    answers, first = await begun(inference.stream(request) if info.is_decoupled else _whole(inference, request))
    async with aclosing(answers):
        yield Generation(profile, collectors, answers, first)


async def lines_of(begins: AbstractAsyncContextManager[Generation]) -> Lines:
    """The tokens of a generation that begins when the first of them is wanted."""
    async with begins as begun, aclosing(begun.lines()) as lines:
        async for line in lines:
            yield line


async def texts(inference: TritonInference, asked: Asked) -> Sequence[Collector]:
    """
    The answers to all prompts, in their order; one failure fails them all, and cancels the others.

    Prompts go together as far as the model batches, else beside each other, `AT_ONCE` of them.

    Raises:
        BadPayload, InferenceFailed: as `generation`.
    """
    most = max(asked.info.config.max_batch_size, 1) if not asked.info.is_decoupled else 1
    places = asyncio.Semaphore(AT_ONCE)

    async def ends(prompts: Sequence[str]) -> Sequence[Collector]:
        async with places, generation(inference, asked, prompts) as begun:
            return await begun.ends()

    parts = await all_of(ends(asked.prompts[start : start + most]) for start in range(0, len(asked.prompts), most))
    return [end for part in parts for end in part]


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


async def _whole(inference: TritonInference, request: Any) -> Answers:
    yield await inference.infer(request)
