"""
Generations under way: a request to the model, its answers as they come, tokens out of them.

A generation is begun when its first answer is there: until then a failure can still be a status. Leaving one early cancels it in the
model. Nobody waits behind another: each generation is a call of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from adapter.fronts.asking import KNOWN_SECONDS, Answers, begun, informed
from adapter.fronts.llm.backends import Piece, Profile, Question, Token, profile_of
from adapter.fronts.llm.collecting import Collector
from adapter.fronts.llm.options import Options
from adapter.fronts.llm.parameters import BadParameter, Wishes
from adapter.inference import InferenceFailed, ModelInfo, is_final
from adapter.triton.inference.client import TritonInference

T = TypeVar("T")
Lines = AsyncGenerator[tuple[Token, Collector | None], None]
"""Tokens of one generation; the last one has its end."""
AT_ONCE = 8
"""Generations of one request that run at a time, where its model takes one prompt a request."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What one HTTP request asks of one model."""

    model: str
    """Triton's name of it."""
    prompts: Sequence[str]
    wishes: Wishes
    is_stream: bool
    """The caller wants tokens as they come."""
    is_dynamic: bool = False
    """Of the text alone, nothing else is wanted."""
    options: Options

    def question(self, info: ModelInfo) -> Question:
        """What its model is asked to tell. Details have the text of each token, which only a stream shows."""
        has_details = self.wishes.has_details and not self.is_dynamic
        has_lines = self.is_stream and not self.is_dynamic
        return Question(is_stream=info.is_decoupled and (self.is_stream or has_details), has_details=has_lines or has_details)


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

    async def asked_by(info: ModelInfo) -> Generation:
        profile = profile_of(info)
        request, collectors = _made(info, profile, asked, prompts)
        answers = inference.stream(request) if info.is_decoupled else _whole(inference, request)
        return Generation(profile, collectors, *await begun(answers))

    found = await informed(inference, asked.model, "", asked_by)
    async with aclosing(found.answers):
        yield found


async def texts(inference: TritonInference, asked: Asked) -> Sequence[Collector]:
    """
    The answers to all prompts, in their order; one failure fails them all, and cancels the others.

    Prompts go together as far as the model batches, else beside each other, `AT_ONCE` of them.

    Raises:
        BadPayload, InferenceFailed: as `generation`.
    """
    info = await inference.model_info(asked.model, max_age_seconds=KNOWN_SECONDS)
    most = max(info.config.max_batch_size, 1) if not info.is_decoupled else 1
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


def _made(info: ModelInfo, profile: Profile, asked: Asked, prompts: Sequence[str]) -> tuple[Any, Sequence[Collector]]:
    """What the model is asked, and what takes the answers of each row. Raises BadParameter."""
    question, wishes, options = asked.question(info), asked.wishes, asked.options
    level = profile.level(info)
    try:
        request = profile.request(info, prompts, wishes, question)
    except BadParameter as bad:
        raise bad.called(wishes.names) from bad
    collectors = [
        Collector(
            prompt,
            wishes,
            is_cumulative=profile.is_cumulative if options.text == "auto" else options.text == "cumulative",
            repeats_prompt=profile.repeats_prompt(info),
            keeps_tokens=question.has_details and not asked.is_stream and (question.is_stream or level != "text"),
        )
        for prompt in prompts
    ]
    request.model_name = asked.model
    return request, collectors


async def _whole(inference: TritonInference, request: Any) -> Answers:
    yield await inference.infer(request)
