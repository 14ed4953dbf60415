"""
One request of LMI, TGI or OpenAI's API, from the parsed body to the answer. For the front of language models, and for others that
carry their bodies.

A failure before the first token is a status; a later one is the last line of the stream. How one model's answers look, say the settings,
and `option.*` of its own `serving.properties`, which beat them; the file's other lines are for DJL Serving's engines. Form: Java's
properties, without its escapes: no option needs one.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from typing import Any

import orjson
from aiohttp import web

from adapter.errors import AdapterError, InvalidModel
from adapter.fronts.answers import NO_SPACE, HttpError, Stream, event, json_answer
from adapter.fronts.asking import info_of, place_of
from adapter.fronts.bodies import parsed
from adapter.fronts.edge import Request
from adapter.fronts.llm.chats import Chats, FileOf
from adapter.fronts.llm.generating import Asked, Collector, all_of, generation, texts
from adapter.fronts.llm.openai import OpenAi, is_openai
from adapter.fronts.llm.schemas import JSON_LINES, OVERLOADED, SSE, Dynamic, Lmi, Tgi, Told
from adapter.model import OPTIONS_FILE
from adapter.serving import KnownModel
from adapter.settings.fronts import OUTPUT_FORMATTERS, ROLLING_BATCHES, LlmSettings
from adapter.telemetry.logs import note
from adapter.triton.inference.client import TritonInference

MOST_BYTES = 64 * 1024
_PAIR = re.compile(r"([^:=\s]+)\s*[:=]?\s*(.*)")
_CONTINUED = re.compile(r"\\(?:\r\n|\n|\r)\s*")
_FLAG = {"true": True, "false": False}
_OPTIONS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "option.tgi_compat": ("is_tgi_compatible", _FLAG),
    "option.output_formatter": ("output_formatter", {word: word for word in OUTPUT_FORMATTERS}),
    "option.enable_streaming": ("is_streaming", _FLAG),
    "option.rolling_batch": ("rolling_batch", {word: word for word in ROLLING_BATCHES}),
}
"""Name → field of `LlmSettings`, and its values by their words."""


def options_of(settings: LlmSettings, properties: bytes | None) -> LlmSettings:
    """
    The settings of a model that has this file, or none.

    Raises:
        InvalidModel: an option has a value that it cannot have.
    """
    changes: dict[str, Any] = {}
    for name, value in read(properties.decode("utf-8", "replace") if properties else ""):
        if name not in _OPTIONS:
            continue
        field, choices = _OPTIONS[name]
        if value.lower() not in choices:
            raise InvalidModel(f"{OPTIONS_FILE}: {name} is {value[:64]!r}; it can be {', '.join(choices)}")
        changes[field] = choices[value.lower()]
    return replace(settings, **changes)


def read(text: str) -> Iterator[tuple[str, str]]:
    """Keys and values of a properties file, in order, without comments."""
    for line in (line.strip() for line in re.split(r"[\r\n]+", _CONTINUED.sub("", text))):
        if line[:1] not in ("#", "!") and (found := _PAIR.fullmatch(line)):
            yield found[1], found[2]


Noted = Callable[[HttpError | AdapterError], Told]


class Answering:
    """Answers the bodies of language models. Call `close` at the end."""

    def __init__(self, settings: LlmSettings, inference: TritonInference, file_of: FileOf) -> None:
        self._settings = settings
        self._inference = inference
        self._file_of = file_of
        self._chats = Chats(file_of)
        self.close = self._chats.close

    async def answer(self, request: Request, model: KnownModel, fixed: Lmi | None = None, value: Any = None) -> web.StreamResponse:
        """
        The answer for a model that serves; also of a request that is wrong or fails.

        Args:
            request: where the answer goes.
            model: which is asked.
            fixed: the schema that the path stands for; None: the model's options and the body say it.
            value: the parsed body; None: it is read here.
        """
        started = time.monotonic()
        is_open, schema = fixed is None, fixed or Lmi()

        def noted(error: HttpError | AdapterError) -> Told:
            failure = schema.told(error, (model.name, model.model_id), value)
            note(reason=failure.reason, error=failure.text)
            return failure

        try:
            own = options_of(self._settings, await self._file_of(model, OPTIONS_FILE, MOST_BYTES))
            if is_open:
                schema = (
                    Dynamic()
                    if own.rolling_batch == "disable"
                    else Tgi(full=NO_SPACE if request.front == "sagemaker" else OVERLOADED)
                    if own.is_tgi_compatible
                    else schema
                )
            if value is None:
                value = await request.read_by(parsed)
            if is_open and is_openai(value):
                is_open, schema = False, OpenAi(is_chat="messages" in value)
            elif is_open and not schema.is_tgi and isinstance(value, dict) and isinstance(value.get("inputs"), list):
                schema = Dynamic()
            has_form = is_open and own.output_formatter in ("jsonlines", "sse")  # then what does not say so is a stream
            wanted = schema.read(value, model.name)
            prompts = [await self._chats.prompt(model, wanted.messages)] if wanted.messages else wanted.prompts
            if wanted.wishes.ignored:
                note(ignored_parameters=list(wanted.wishes.ignored))
            asked = Asked(
                info=await info_of(self._inference, place_of(model)),
                prompts=[prompt for prompt in prompts for _ in range(wanted.choices)],
                wishes=wanted.wishes,
                is_stream=has_form or (is_open and own.is_streaming) if wanted.is_stream is None else wanted.is_stream,
                is_dynamic=schema.is_dynamic,
            )
            if asked.is_stream:
                is_sse = own.output_formatter == "sse" if has_form else schema.content_type == SSE
                return await self._streamed(request, asked, schema, noted, is_sse=is_sse)
            ends = await texts(self._inference, asked)
        except (HttpError, AdapterError) as error:
            failure = noted(error)
            return json_answer(schema.failed(failure), failure.status, error.headers if isinstance(error, HttpError) else None)
        headers = {**_counts(ends), "x-total-time": str(round((time.monotonic() - started) * 1000))}
        return json_answer(schema.answer(ends, has_details=asked.wishes.has_details), headers=headers)

    async def _streamed(self, request: Request, asked: Asked, schema: Lmi, noted: Noted, *, is_sse: bool) -> web.StreamResponse:
        stream, framed = (Stream(request, SSE), event) if is_sse else (Stream(request, JSON_LINES), _line)
        try:
            async with AsyncExitStack() as stack:
                generations = (generation(self._inference, asked, [prompt]) for prompt in asked.prompts)
                begun = await all_of(map(stack.enter_async_context, generations))
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


def _line(value: Mapping[str, Any]) -> bytes:
    return orjson.dumps(value) + b"\n"


def _counts(ends: Sequence[Collector]) -> dict[str, str]:
    """Headers of what is known of all of them."""
    counts = {
        "x-prompt-tokens": [end.prompt_tokens for end in ends],
        "x-generated-tokens": [end.generated_tokens for end in ends],
    }
    return {name: str(sum(known)) for name, each in counts.items() if len(known := [n for n in each if n is not None]) == len(ends)}
