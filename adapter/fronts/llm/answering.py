"""
One request of LMI or TGI, from the parsed body to the answer. For the front of language models, and for whoever else carries LMI.

A failure before the first token is a status; a later one is the last line of the stream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from enum import Enum
from typing import Any, TypeVar

from aiohttp import web

from adapter.errors import AdapterError
from adapter.fronts.answers import HttpError, Stream, json_answer
from adapter.fronts.llm.collecting import End
from adapter.fronts.llm.generating import Asked, all_of, generation, texts
from adapter.fronts.llm.options import Options, options_of
from adapter.fronts.llm.parameters import BadPayload, is_text, wishes_of
from adapter.fronts.llm.schemas import JSON_LINES, SSE, Lmi, Schema, Tgi, Told, framed, lmi_body, tgi_body, told
from adapter.serving import KnownModel
from adapter.settings.fronts import LlmSettings
from adapter.telemetry.logs import note
from adapter.triton.inference.client import TritonInference

T = TypeVar("T")
MOST_PROMPTS = 64
"""Of a dynamic batch: each may be a call of its own."""
Properties = Callable[[KnownModel], Awaitable[bytes | None]]
"""A model's `serving.properties`; None: it has none."""


class Shape(Enum):
    """Which answer a path has."""

    BY_OPTIONS = "by_options"
    """LMI, or TGI where the model's options say so."""
    TGI = "tgi"
    """A list of one, or a stream where the body asks for it."""
    TGI_OBJECT = "tgi_object"
    TGI_STREAM = "tgi_stream"


class Answering:
    """Answers bodies that are read already."""

    def __init__(self, settings: LlmSettings, inference: TritonInference, properties: Properties) -> None:
        self._settings = settings
        self._inference = inference
        self._properties = properties

    async def answer(
        self, request: web.Request, model: KnownModel, body: Callable[[], Awaitable[Any]], shape: Shape = Shape.BY_OPTIONS
    ) -> web.StreamResponse:
        """
        The answer for a model that serves; also of a request that is wrong or fails.

        Args:
            request: where the answer goes.
            model: which is asked.
            body: reads and parses the body; may raise HttpError.
            shape: what the path stands for.
        """
        started = time.monotonic()
        reply = _Reply(request, model, is_tgi=shape is not Shape.BY_OPTIONS)
        try:
            options = options_of(self._settings, await self._properties(model))
            reply.is_tgi = reply.is_tgi or options.is_tgi_compatible
            reply.is_dynamic = options.is_dynamic and shape is Shape.BY_OPTIONS
            value = reply.value = await body()
            asked = _asked(value, model.model_id, options, shape, reply)
            if asked.wishes.ignored:
                note(ignored_parameters=list(asked.wishes.ignored))
            if asked.is_stream:
                return await self._streamed(asked, options, shape, reply)
            return await self._whole(asked, shape, reply, started)
        except (HttpError, AdapterError) as error:
            return reply.failed(error)

    async def _whole(self, asked: Asked, shape: Shape, reply: _Reply, started: float) -> web.Response:
        ends = await texts(self._inference, asked)
        headers = {**_counts(ends), "x-total-time": str(round((time.monotonic() - started) * 1000))}
        if asked.is_dynamic:
            return json_answer([{"generated_text": end.text} for end in ends], headers=headers)
        (end,) = ends
        value = reply.schema.whole(end, has_details=asked.wishes.has_details)
        return json_answer([value] if reply.is_tgi and shape is not Shape.TGI_OBJECT else value, headers=headers)

    async def _streamed(self, asked: Asked, options: Options, shape: Shape, reply: _Reply) -> web.StreamResponse:
        is_free = shape is Shape.BY_OPTIONS and options.output_formatter in ("jsonlines", "sse")
        is_sse = options.output_formatter == "sse" if is_free else reply.is_tgi
        content_type = SSE if is_sse else JSON_LINES
        stream = Stream(reply.request, content_type)
        values = self._steps(asked) if asked.is_dynamic else self._lines(asked, reply.schema)
        try:
            async with aclosing(values):
                async for value in values:
                    await stream.write(framed(value, content_type))
        except (HttpError, AdapterError) as error:
            if not stream.has_begun:
                raise
            await stream.write(framed(reply.broken(error), content_type))
        return stream.response

    async def _lines(self, asked: Asked, schema: Schema) -> AsyncGenerator[Mapping[str, Any], None]:
        has_details = asked.wishes.has_details
        async with generation(self._inference, asked, asked.prompts) as begun, aclosing(begun.lines()) as lines:
            index = 0
            async for token, end in lines:
                index += 1
                yield schema.line(token, index, end, has_details=has_details)

    async def _steps(self, asked: Asked) -> AsyncGenerator[Mapping[str, Any], None]:
        """A line has the next text of each prompt; of one that has ended an empty one. Without any text there is one line."""
        async with AsyncExitStack() as stack:
            begun = await all_of(stack.enter_async_context(generation(self._inference, asked, [prompt])) for prompt in asked.prompts)
            lines = [await stack.enter_async_context(aclosing(each.lines())) for each in begun]
            is_open, has_line = True, False
            while is_open:
                found = await _each(anext(each, None) for each in lines)
                is_open = any(entry is not None for entry in found)
                outputs = [entry[0].text if entry is not None else "" for entry in found]
                if any(outputs) or not (is_open or has_line):
                    has_line = True
                    yield {"outputs": outputs}


class _Reply:
    """What is known of the answer's form so far."""

    def __init__(self, request: web.Request, model: KnownModel, *, is_tgi: bool) -> None:
        self.request = request
        self.is_tgi = is_tgi
        self.is_dynamic = False
        self.value: Any = None
        """The parsed body."""
        self._names = (model.name, model.model_id)

    @property
    def schema(self) -> Schema:
        return Tgi() if self.is_tgi else Lmi()

    def failed(self, error: HttpError | AdapterError) -> web.Response:
        failure = self._told(error)
        body = tgi_body(failure.status, failure.text) if self.is_tgi else lmi_body(failure, is_dynamic=self.is_dynamic)
        return json_answer(body, failure.status, error.headers if isinstance(error, HttpError) else None)

    def broken(self, error: HttpError | AdapterError) -> Mapping[str, Any]:
        """The last line of a stream."""
        failure = self._told(error)
        return lmi_body(failure, is_dynamic=True) if self.is_dynamic else self.schema.broken(failure.text)

    def _told(self, error: HttpError | AdapterError) -> Told:
        failure = told(error, self._names, is_tgi=self.is_tgi, said=str(self.value))
        note(reason=failure.reason, error=failure.text)
        return failure


def _asked(value: Any, model_id: str, options: Options, shape: Shape, reply: _Reply) -> Asked:
    """Of a parsed body. Raises BadPayload."""
    if not isinstance(value, dict):
        raise BadPayload("the body must be a JSON object with inputs")
    inputs = value.get("inputs")
    reply.is_dynamic = reply.is_dynamic or (isinstance(inputs, list) and not reply.is_tgi)
    if reply.is_dynamic:
        reply.is_tgi = False
    prompts: list[Any] = inputs if isinstance(inputs, list) and reply.is_dynamic else [inputs]
    if not prompts or not all(is_text(prompt) and prompt for prompt in prompts):
        kind = "a text, or a list of texts," if not reply.is_tgi else "a text"
        raise BadPayload(f"inputs must be {kind} and not empty")
    if len(prompts) > MOST_PROMPTS:
        raise BadPayload(f"inputs has {len(prompts)} texts; {MOST_PROMPTS} are the most")
    wishes = wishes_of(value.get("parameters"), is_tgi=reply.is_tgi)
    return Asked(
        model=model_id,
        prompts=prompts,
        wishes=wishes,
        is_stream=_is_stream(value, options, shape),
        is_dynamic=reply.is_dynamic,
        options=options,
    )


def _is_stream(value: Mapping[str, Any], options: Options, shape: Shape) -> bool:
    wanted = value.get("stream")
    if wanted is not None and not isinstance(wanted, bool):
        raise BadPayload("stream must be true or false")
    if shape is Shape.TGI_OBJECT or shape is Shape.TGI_STREAM:
        return shape is Shape.TGI_STREAM
    if wanted is None and shape is Shape.BY_OPTIONS:
        return options.is_streaming or options.output_formatter in ("jsonlines", "sse")
    return bool(wanted)


async def _each(steps: Iterable[Awaitable[T]]) -> Sequence[T]:
    """All of them, also where one fails: a generator that still runs cannot be closed."""
    found = await asyncio.gather(*steps, return_exceptions=True)
    for entry in found:
        if isinstance(entry, BaseException):
            raise entry
    return [entry for entry in found if not isinstance(entry, BaseException)]


def _counts(ends: Sequence[End]) -> dict[str, str]:
    """Headers of what is known of all of them."""
    counts = {
        "x-prompt-tokens": [end.prompt_tokens for end in ends],
        "x-generated-tokens": [end.generated_tokens for end in ends],
    }
    return {name: str(sum(known)) for name, each in counts.items() if len(known := [n for n in each if n is not None]) == len(ends)}
