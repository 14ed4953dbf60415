"""
Generations under way: a request to the model, its answers as they come, tokens out of them.

Leaving one early cancels it in the model. Each is a call of its own; those of one stream go on in step.

One line of a stream is one token. Where an answer holds several and their own texts do not join to its text (a character may be split
among tokens), the last of them has all of it. Nothing is invented: what the backend did not tell is None.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
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
        self._last = Piece(text=b"")

    def take(self, piece: Piece, *, is_final: bool) -> Sequence[Token]:
        """The tokens of one answer; their texts are what the caller is to see."""
        self.is_over = is_final or piece.reason is not None
        text = self._decoder.decode(self._delta(piece.text), self.is_over)
        tokens = _with_texts(piece.tokens, text)
        count = piece.output_tokens if piece.output_tokens is not None else None if piece.tokens is None else len(piece.tokens)
        if count is not None or text:
            self._counts.append(count)
        self._last = piece
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
        reason = self._last.reason
        if reason == "stop":
            return self._why_stopped()
        if reason is not None or self.generated_tokens is None:
            return "length" if reason == "length" else None
        if self.generated_tokens >= self.wishes.max_new_tokens:
            return "length"
        return None if self._has_stops else "eos_token"

    @property
    def _has_stops(self) -> bool:
        return bool({"stop_sequences", "stop_token_ids"} & self.wishes.given.keys())

    def _why_stopped(self) -> str | None:
        """`stop` is the end-of-sequence token, or a stop sequence: the backend says which, or its tokens show it."""
        if self._last.stop is not None:
            return "stop_sequence" if self._last.stop else "eos_token"
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
Next = tuple[Token, Collector | None]
"""A token; the last one of a generation has its end."""
Step = Mapping[int, Next]
"""The next token of each prompt that is answered now, by its number."""
AT_ONCE = 8
"""Generations of one request that run at a time, where its model takes one prompt a request."""


async def tokens_of(inference: TritonInference, info: ModelInfo, wishes: Wishes, prompts: Sequence[str]) -> AsyncGenerator[Next, None]:
    """
    The answers to prompts that go together, several only to a model that is not decoupled. Leaving it cancels the generation.

    They end as soon as the backend has told why: its last answer may be empty, come long after that, or fail then.

    Raises:
        HttpError: 400: this model cannot be asked so.
        InferenceFailed: it cannot be asked, or has failed.
    """
    profile = profile_of(info)
    is_stream = info.is_decoupled and (wishes.is_stream or wishes.has_details)  # only a stream shows the text of each token
    keeps_tokens = wishes.has_details and not wishes.is_stream and (is_stream or profile.level(info) != "text")
    has_details = wishes.has_details or (wishes.is_stream and not wishes.is_dynamic)
    request = profile.request(info, prompts, replace(wishes, is_stream=is_stream, has_details=has_details))
    form = {"is_cumulative": profile.is_cumulative, "repeats_prompt": profile.repeats_prompt(info), "keeps_tokens": keeps_tokens}
    collectors = [Collector(prompt, wishes, **form) for prompt in prompts]
    async with aclosing(inference.stream(request) if info.is_decoupled else _whole(inference, request)) as answers:
        async for answer in answers:
            pairs = zip(answer.outputs, answer.raw_output_contents, strict=True)
            outputs = {output.name: (output.datatype, data) for output, data in pairs}
            for row, collector in enumerate(collectors):
                piece = profile.piece(outputs, row, len(collectors)) if outputs else Piece(text=b"")
                tokens = collector.take(piece, is_final=is_final(answer))
                if collector.is_over and not tokens:
                    tokens = [Token(None, "", None)]
                for token in tokens:
                    yield token, collector if collector.is_over and token is tokens[-1] else None
            if collector.is_over:
                return


async def ends_of(inference: TritonInference, info: ModelInfo, wishes: Wishes) -> Sequence[Collector]:
    """
    The answers to all prompts, in their order; one failure fails them all, and cancels the others. Raises as `tokens_of`.

    Prompts go together as far as the model batches, else beside each other, `AT_ONCE` of them.
    """
    most = 1 if info.is_decoupled else max(info.config.max_batch_size, 1)
    places = asyncio.Semaphore(AT_ONCE)

    async def ends(prompts: Sequence[str]) -> Sequence[Collector]:
        async with places, aclosing(tokens_of(inference, info, wishes, prompts)) as tokens:
            return [end async for _, end in tokens if end is not None]

    parts = await all_of(ends(wishes.prompts[start : start + most]) for start in range(0, len(wishes.prompts), most))
    return [end for part in parts for end in part]


async def steps(inference: TritonInference, info: ModelInfo, wishes: Wishes) -> AsyncGenerator[Step, None]:
    """The tokens of all prompts in step, of `AT_ONCE` prompts until these have ended. Raises as `tokens_of`."""
    for start in range(0, len(wishes.prompts), AT_ONCE):
        async with AsyncExitStack() as stack:
            running: dict[int, AsyncGenerator[Next, None]] = {}
            for number, prompt in enumerate(wishes.prompts[start : start + AT_ONCE], start):
                running[number] = await stack.enter_async_context(aclosing(tokens_of(inference, info, wishes, [prompt])))
            while running:
                step = dict(zip(running, await all_of(map(anext, running.values())), strict=True))
                yield step
                running = {number: running[number] for number, (_, end) in step.items() if end is None}


def totals(ends: Sequence[Collector], choices: int = 1) -> Sequence[int | None]:
    """Tokens of the prompts, each of which has that number of choices, and of the texts. None: one is not known."""
    counts = [end.prompt_tokens for end in ends[::choices]], [end.generated_tokens for end in ends]
    return [None if None in known else sum(filter(None, known)) for known in counts]


async def all_of(works: Iterable[Awaitable[T]]) -> Sequence[T]:
    """The results of all, in their order. The first failure cancels the others; it is raised when all have ended."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise


async def _whole(inference: TritonInference, request: Any) -> AsyncGenerator[Any, None]:
    yield await inference.infer(request)
