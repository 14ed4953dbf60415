"""
One request of LMI or TGI, from the parsed body to the answer. For the front of language models, and for whoever else carries LMI.

A failure before the first token is a status; a later one is the last line of the stream.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from enum import Enum
from typing import Any

from aiohttp import web

from adapter.errors import AdapterError
from adapter.fronts.answers import HttpError, Stream, json_answer
from adapter.fronts.llm.collecting import Collector
from adapter.fronts.llm.completions import Completions
from adapter.fronts.llm.generating import Asked, all_of, generation, texts
from adapter.fronts.llm.openai import is_openai
from adapter.fronts.llm.options import Options, Properties, options_of
from adapter.fronts.llm.parameters import MOST_PROMPTS, BadPayload, is_text, wishes_of
from adapter.fronts.llm.schemas import JSON_LINES, SSE, Dynamic, Lmi, Schema, Tgi, Told, framed, told
from adapter.serving import KnownModel
from adapter.settings.fronts import LlmSettings
from adapter.telemetry.logs import note
from adapter.triton.inference.client import TritonInference


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

    def __init__(self, settings: LlmSettings, inference: TritonInference, properties: Properties, completions: Completions) -> None:
        self.completions = completions
        """Of OpenAI's API."""
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
        schema: Schema = Lmi() if shape is Shape.BY_OPTIONS else Tgi()
        value: Any = None

        def noted(error: HttpError | AdapterError) -> Told:
            failure = told(error, (model.name, model.model_id), is_tgi=schema.is_tgi, said=str(value))
            note(reason=failure.reason, error=failure.text)
            return failure

        try:
            options = options_of(self._settings, await self._properties(model))
            if shape is Shape.BY_OPTIONS:
                schema = Dynamic() if options.is_dynamic else Tgi() if options.is_tgi_compatible else schema
            value = await body()
            if shape is Shape.BY_OPTIONS and is_openai(value):
                return await self.completions.answer(request, model, value, is_chat="messages" in value)
            if not isinstance(value, dict):
                raise BadPayload("the body must be a JSON object with inputs")
            if isinstance(value.get("inputs"), list) and not schema.is_tgi:
                schema = Dynamic()
            asked = _asked(value, model.model_id, options, shape, schema)
            if asked.wishes.ignored:
                note(ignored_parameters=list(asked.wishes.ignored))
            if asked.is_stream:
                return await self._streamed(asked, shape, request, noted)
            ends = await texts(self._inference, asked)
        except (HttpError, AdapterError) as error:
            failure = noted(error)
            return json_answer(schema.failed(failure), failure.status, error.headers if isinstance(error, HttpError) else None)
        headers = {**_counts(ends), "x-total-time": str(round((time.monotonic() - started) * 1000))}
        values = [schema.whole(end, has_details=asked.wishes.has_details) for end in ends]
        is_list = schema.is_dynamic or (schema.is_tgi and shape is not Shape.TGI_OBJECT)
        return json_answer(values if is_list else values[0], headers=headers)

    async def _streamed(
        self, asked: Asked, shape: Shape, request: web.Request, noted: Callable[[HttpError | AdapterError], Told]
    ) -> web.StreamResponse:
        is_free = shape is Shape.BY_OPTIONS and asked.options.has_stream_format
        is_sse = asked.options.output_formatter == "sse" if is_free else asked.schema.is_tgi
        content_type = SSE if is_sse else JSON_LINES
        stream = Stream(request, content_type)
        try:
            async with aclosing(self._steps(asked) if asked.schema.is_dynamic else self._lines(asked)) as values:
                async for value in values:
                    await stream.write(framed(value, content_type))
        except (HttpError, AdapterError) as error:
            if not stream.response.prepared:
                raise
            await stream.write(framed(asked.schema.broken(noted(error)), content_type))
        return stream.response

    async def _lines(self, asked: Asked) -> AsyncGenerator[Mapping[str, Any], None]:
        async with generation(self._inference, asked, asked.prompts) as begun, aclosing(begun.lines()) as lines:
            index = 0
            async for token, end in lines:
                index += 1
                yield asked.schema.line(token, index, end, has_details=asked.wishes.has_details)

    async def _steps(self, asked: Asked) -> AsyncGenerator[Mapping[str, Any], None]:
        """A line has the next text of each prompt; of one that has ended an empty one. Without any text there is one line."""
        async with AsyncExitStack() as stack:
            begun = await all_of(stack.enter_async_context(generation(self._inference, asked, [prompt])) for prompt in asked.prompts)
            lines = [await stack.enter_async_context(aclosing(each.lines())) for each in begun]
            is_open, has_line = True, False
            while is_open:
                found = await all_of(anext(each, None) for each in lines)
                is_open = any(entry is not None for entry in found)
                outputs = [entry[0].text if entry is not None else "" for entry in found]
                if any(outputs) or not (is_open or has_line):
                    has_line = True
                    yield {"outputs": outputs}


def _asked(value: Mapping[str, Any], model_id: str, options: Options, shape: Shape, schema: Schema) -> Asked:
    """Of a parsed body. Raises BadPayload."""
    inputs = value.get("inputs")
    prompts: list[Any] = inputs if isinstance(inputs, list) and schema.is_dynamic else [inputs]
    if not prompts or not all(is_text(prompt) and prompt for prompt in prompts):
        kind = "a text, or a list of texts," if not schema.is_tgi else "a text"
        raise BadPayload(f"inputs must be {kind} and not empty")
    if len(prompts) > MOST_PROMPTS:
        raise BadPayload(f"inputs has {len(prompts)} texts; {MOST_PROMPTS} are the most")
    wishes = wishes_of(value.get("parameters"), is_tgi=schema.is_tgi)
    is_stream = _is_stream(value, options, shape)
    return Asked(model=model_id, prompts=prompts, wishes=wishes, is_stream=is_stream, schema=schema, options=options)


def _is_stream(value: Mapping[str, Any], options: Options, shape: Shape) -> bool:
    wanted = value.get("stream")
    if wanted is not None and not isinstance(wanted, bool):
        raise BadPayload("stream must be true or false")
    if shape is Shape.TGI_OBJECT or shape is Shape.TGI_STREAM:
        return shape is Shape.TGI_STREAM
    if wanted is None and shape is Shape.BY_OPTIONS:
        return options.is_streaming or options.has_stream_format
    return bool(wanted)


def _counts(ends: Sequence[Collector]) -> dict[str, str]:
    """Headers of what is known of all of them."""
    counts = {
        "x-prompt-tokens": [end.prompt_tokens for end in ends],
        "x-generated-tokens": [end.generated_tokens for end in ends],
    }
    return {name: str(sum(known)) for name, each in counts.items() if len(known := [n for n in each if n is not None]) == len(ends)}
