"""
One request of LMI, TGI or OpenAI's API, from the parsed body to the answer. For the front of language models, and for others that
carry their bodies.

A failure before the first token is a status; a later one is the last line of the stream.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from enum import Enum
from typing import Any

import orjson
from aiohttp import web

from adapter.errors import AdapterError
from adapter.fronts.answers import HttpError, Stream, event, json_answer
from adapter.fronts.edge import Request
from adapter.fronts.llm.chats import Chats
from adapter.fronts.llm.collecting import Collector
from adapter.fronts.llm.generating import Asked, all_of, generation, texts
from adapter.fronts.llm.openai import OpenAi, is_openai
from adapter.fronts.llm.options import Options, Properties, options_of
from adapter.fronts.llm.parameters import MOST_PROMPTS, BadPayload, is_text, wishes_of
from adapter.fronts.llm.schemas import JSON_LINES, SSE, Dynamic, Lmi, Schema, Tgi, Told
from adapter.serving import KnownModel
from adapter.settings.fronts import LlmSettings
from adapter.telemetry.logs import note
from adapter.triton.inference.client import TritonInference

Body = Callable[[], Awaitable[Any]]
Noted = Callable[[HttpError | AdapterError], Told]


class Shape(Enum):
    """Which answer a path has."""

    BY_OPTIONS = "by_options"
    """LMI, or TGI where the model's options say so; OpenAI's, where the body is one of its."""
    TGI = "tgi"
    """A list of one, or a stream where the body asks for it."""
    TGI_OBJECT = "tgi_object"
    TGI_STREAM = "tgi_stream"
    COMPLETION = "completion"
    CHAT = "chat"


class Answering:
    """Answers the bodies of language models."""

    def __init__(self, settings: LlmSettings, inference: TritonInference, properties: Properties, chats: Chats) -> None:
        self._settings = settings
        self._inference = inference
        self._properties = properties
        self._chats = chats

    async def answer(self, request: Request, model: KnownModel, body: Body, shape: Shape = Shape.BY_OPTIONS) -> web.StreamResponse:
        """
        The answer for a model that serves; also of a request that is wrong or fails.

        Args:
            request: where the answer goes.
            model: which is asked.
            body: reads and parses the body; may raise HttpError.
            shape: what the path stands for.
        """
        started = time.monotonic()
        schema = _schema_of(shape, model)
        value: Any = None

        def noted(error: HttpError | AdapterError) -> Told:
            failure = schema.told(error, (model.name, model.model_id), value)
            note(reason=failure.reason, error=failure.text)
            return failure

        try:
            options = options_of(self._settings, await self._properties(model))
            if shape is Shape.BY_OPTIONS:
                schema = Dynamic() if options.is_dynamic else Tgi() if options.is_tgi_compatible else schema
            value = await body()
            if shape is Shape.BY_OPTIONS and is_openai(value):
                shape = Shape.CHAT if "messages" in value else Shape.COMPLETION
                schema = _schema_of(shape, model)
            elif isinstance(value, dict) and isinstance(value.get("inputs"), list) and not schema.is_tgi:
                schema = Dynamic()
            if isinstance(schema, OpenAi):
                asked = await self._asked_by(schema, model, value, options)
            else:
                asked = _asked(value, model.model_id, options, shape, schema)
            if asked.wishes.ignored:
                note(ignored_parameters=list(asked.wishes.ignored))
            if asked.is_stream:
                is_free = shape is Shape.BY_OPTIONS and options.has_stream_format
                is_sse = options.output_formatter == "sse" if is_free else schema.content_type == SSE
                return await self._streamed(request, asked, schema, noted, is_sse=is_sse)
            ends = await texts(self._inference, asked)
        except (HttpError, AdapterError) as error:
            failure = noted(error)
            return json_answer(schema.failed(failure), failure.status, error.headers if isinstance(error, HttpError) else None)
        headers = {**_counts(ends), "x-total-time": str(round((time.monotonic() - started) * 1000))}
        return json_answer(schema.answer(ends, has_details=asked.wishes.has_details), headers=headers)

    async def _asked_by(self, schema: OpenAi, model: KnownModel, value: Any, options: Options) -> Asked:
        wanted = schema.read(value)
        prompts = [await self._chats.prompt(model, wanted.messages)] if schema.is_chat else wanted.prompts
        prompts = [prompt for prompt in prompts for _ in range(wanted.choices)]
        return Asked(model=model.model_id, prompts=prompts, wishes=wanted.wishes, is_stream=wanted.is_stream, options=options)

    async def _streamed(self, request: Request, asked: Asked, schema: Schema, noted: Noted, *, is_sse: bool) -> web.StreamResponse:
        stream, framed = (Stream(request, SSE), event) if is_sse else (Stream(request, JSON_LINES), _line)
        try:
            async with AsyncExitStack() as stack:
                begun = await all_of(stack.enter_async_context(generation(self._inference, asked, [prompt])) for prompt in asked.prompts)
                lines = [await stack.enter_async_context(aclosing(each.lines())) for each in begun]
                async with aclosing(schema.stream(lines, has_details=asked.wishes.has_details)) as values:
                    async for value in values:
                        await stream.write(framed(value))
        except (HttpError, AdapterError) as error:
            if not stream.response.prepared:
                raise
            await stream.write(framed(schema.broken(noted(error))))
        if schema.end:
            await stream.write(schema.end)
        return stream.response


def _schema_of(shape: Shape, model: KnownModel) -> Schema:
    if shape in (Shape.COMPLETION, Shape.CHAT):
        return OpenAi(model.name, is_chat=shape is Shape.CHAT)
    return Lmi() if shape is Shape.BY_OPTIONS else Tgi(is_list=shape is not Shape.TGI_OBJECT)


def _asked(value: Any, model_id: str, options: Options, shape: Shape, schema: Schema) -> Asked:
    """Of a parsed body of LMI or TGI. Raises BadPayload."""
    if not isinstance(value, dict):
        raise BadPayload("the body must be a JSON object with inputs")
    inputs = value.get("inputs")
    prompts: list[Any] = inputs if isinstance(inputs, list) and schema.is_dynamic else [inputs]
    if not prompts or not all(is_text(prompt) and prompt for prompt in prompts):
        kind = "a text, or a list of texts," if not schema.is_tgi else "a text"
        raise BadPayload(f"inputs must be {kind} and not empty")
    if len(prompts) > MOST_PROMPTS:
        raise BadPayload(f"inputs has {len(prompts)} texts; {MOST_PROMPTS} are the most")
    wishes = wishes_of(value.get("parameters"), is_tgi=schema.is_tgi)
    is_stream = _is_stream(value, options, shape)
    return Asked(model=model_id, prompts=prompts, wishes=wishes, is_stream=is_stream, is_dynamic=schema.is_dynamic, options=options)


def _is_stream(value: Mapping[str, Any], options: Options, shape: Shape) -> bool:
    wanted = value.get("stream")
    if wanted is not None and not isinstance(wanted, bool):
        raise BadPayload("stream must be true or false")
    if shape is Shape.TGI_OBJECT or shape is Shape.TGI_STREAM:
        return shape is Shape.TGI_STREAM
    if wanted is None and shape is Shape.BY_OPTIONS:
        return options.is_streaming or options.has_stream_format
    return bool(wanted)


def as_it_is(value: Any) -> Body:
    """A body that is parsed already."""

    async def body() -> Any:
        return value

    return body


def _line(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value) + b"\n"


def _counts(ends: Sequence[Collector]) -> dict[str, str]:
    """Headers of what is known of all of them."""
    counts = {
        "x-prompt-tokens": [end.prompt_tokens for end in ends],
        "x-generated-tokens": [end.generated_tokens for end in ends],
    }
    return {name: str(sum(known)) for name, each in counts.items() if len(known := [n for n in each if n is not None]) == len(ends)}
