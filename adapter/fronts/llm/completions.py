"""
One request of OpenAI's API, from the parsed body to the answer. A failure before the first token is a status; a later one an event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, aclosing, suppress
from dataclasses import replace
from http import HTTPStatus
from typing import Any

from aiohttp import web

from adapter.errors import AdapterError
from adapter.fronts.answers import HttpError, Stream, json_answer, status_of
from adapter.fronts.llm.backends import Token
from adapter.fronts.llm.chats import Chats
from adapter.fronts.llm.collecting import Collector
from adapter.fronts.llm.generating import AT_ONCE, Asked, all_of, generation, texts
from adapter.fronts.llm.openai import DONE, Answer, BadField, Wanted, error_body, event, field_of, wanted_of
from adapter.fronts.llm.options import Properties, options_of
from adapter.fronts.llm.parameters import BAD_PAYLOAD, BadParameter
from adapter.fronts.llm.schemas import SSE, Lmi
from adapter.fronts.memory import is_out_of_memory
from adapter.inference import InferenceFailed
from adapter.serving import KnownModel
from adapter.settings.fronts import LlmSettings
from adapter.telemetry.logs import note
from adapter.triton.inference.client import TritonInference

Lines = AsyncGenerator[tuple[Token, Collector | None], None]


class Completions:
    """Answers bodies that are read already."""

    def __init__(self, settings: LlmSettings, inference: TritonInference, properties: Properties, chats: Chats) -> None:
        self._settings = settings
        self._inference = inference
        self._properties = properties
        self._chats = chats

    async def answer(self, request: web.Request, model: KnownModel, value: Any, *, is_chat: bool) -> web.StreamResponse:
        """The answer for a model that serves, or why there is none."""
        try:
            wanted = wanted_of(value, is_chat=is_chat, model=model.name)
            if wanted.wishes.ignored:
                note(ignored_parameters=list(wanted.wishes.ignored))
            options = options_of(self._settings, await self._properties(model))
            prompts = [await self._chats.prompt(model, wanted.messages)] if is_chat else wanted.prompts
            prompts = [prompt for prompt in prompts for _ in range(wanted.choices)]
            wishes = replace(wanted.wishes, has_prompt_in_text=wanted.wishes.has_prompt_in_text and not wanted.is_stream)
            asked = Asked(model=model.model_id, prompts=prompts, wishes=wishes, is_stream=wanted.is_stream, schema=Lmi(), options=options)
            if wanted.is_stream:
                return await self._streamed(request, asked, wanted, model)
            return json_answer(Answer(wanted).whole(await texts(self._inference, asked)))
        except (HttpError, AdapterError) as error:
            return failed(error, model, said=str(value), headers=error.headers if isinstance(error, HttpError) else None)

    async def _streamed(self, request: web.Request, asked: Asked, wanted: Wanted, model: KnownModel) -> web.StreamResponse:
        if len(asked.prompts) > AT_ONCE:
            raise BadField("n" if wanted.choices > 1 else "prompt", f"a stream has at most {AT_ONCE} choices")
        stream, answer, ends = Stream(request, SSE), Answer(wanted), list[Collector | None](None for _ in asked.prompts)
        try:
            async with AsyncExitStack() as stack:
                begun = await all_of(stack.enter_async_context(generation(self._inference, asked, [prompt])) for prompt in asked.prompts)
                lines = [await stack.enter_async_context(aclosing(each.lines())) for each in begun]
                for index, prompt in enumerate(asked.prompts):
                    if (piece := answer.begun(index, prompt)) is not None:
                        await stream.write(event(piece))
                async with aclosing(merged(lines)) as tokens:
                    async for index, token, end in tokens:
                        if token.text:
                            await stream.write(event(answer.token(index, token)))
                        if end is not None:
                            ends[index] = end
                            await stream.write(event(answer.ended(index, end)))
            if wanted.has_usage:
                await stream.write(event(answer.counted([end for end in ends if end is not None])))
        except (HttpError, AdapterError) as error:
            if not stream.response.prepared:
                raise
            status, body = told(error, model, said="")
            note(error=body["error"]["message"], status_in_stream=status)
            await stream.write(event(body))
        await stream.write(DONE)
        return stream.response


async def merged(sources: Sequence[Lines]) -> AsyncGenerator[tuple[int, Token, Collector | None], None]:
    """The entries of all, each as soon as it is there, with the number of its source. Raises what the first one raises."""
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


def told(error: HttpError | AdapterError, model: KnownModel, *, said: str) -> tuple[int, Any]:
    """Status and body of a failure. What the request itself has said does not make its backend's memory run out."""
    if isinstance(error, BadParameter):
        error = field_of(error, {})
    if isinstance(error, HttpError):
        status = 400 if error.status == BAD_PAYLOAD else error.status
    else:
        status = status_of(error)
        if isinstance(error, InferenceFailed) and is_out_of_memory(error.text, (model.name, model.model_id), is_load=False, said=said):
            status = HTTPStatus.INSUFFICIENT_STORAGE
    return status, error_body(status, error.text, error.field if isinstance(error, BadField) else None)


def failed(error: HttpError | AdapterError, model: KnownModel, *, said: str, headers: Any = None) -> web.Response:
    """The answer to a request that failed, noted for the log."""
    status, body = told(error, model, said=said)
    note(reason="payload" if isinstance(error, HttpError) else error.reason, error=body["error"]["message"])
    return json_answer(body, status, headers)
