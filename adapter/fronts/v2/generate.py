"""
`generate` and `generate_stream`: flat JSON in, flat JSON out; the latter as server-sent events, each as soon as it is there.

What fails before the model has been asked is an ordinary error. The status of a stream is that of its first answer; an error that comes
later is an event of its own. What a client that leaves, or does not read, has asked for is cancelled in Triton.
Source: Triton's `docs/protocol/extension_generate.md`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from functools import partial
from typing import TypeVar

import orjson
from aiohttp import web

from adapter.fronts.answers import JSON, HttpError, bytes_answer, compressed, status_of
from adapter.fronts.asking import NotOneAnswer, informed, only
from adapter.fronts.bodies import LARGE_BYTES, body_of
from adapter.fronts.edge import Route
from adapter.fronts.openapi import operation
from adapter.fronts.streams import Stream, stream_headers
from adapter.fronts.v2.described import GENERATE
from adapter.fronts.v2.generating import Object, generated, object_of, requested
from adapter.fronts.v2.places import PLACES, place_of
from adapter.inference import Failure, Inference, InferenceFailed, InferRequest, InferResponse, ModelInfo
from adapter.telemetry.logs import note

EVENTS = "text/event-stream; charset=utf-8"
Result = TypeVar("Result")
_NOT_ONE = "generate expects model to produce exactly 1 response, use generate_stream for a model that produces any other number"


def routes(inference: Inference, non_finite: str) -> Sequence[Route]:
    """The two calls, with a version in the path and without; `non_finite` as V2_NON_FINITE."""
    handlers = _Generate(inference, non_finite)
    found = []
    for place in PLACES:
        found += [
            Route(
                method="POST",
                path=f"{place}/generate",
                handler=handlers.whole,
                api="inference",
                about=operation("One answer, as a flat object", body=GENERATE),
            ),
            Route(
                method="POST",
                path=f"{place}/generate_stream",
                handler=handlers.stream,
                api="inference",
                about=operation("All answers, as events", body=GENERATE),
            ),
        ]
    return found


class _Generate:
    def __init__(self, inference: Inference, non_finite: str) -> None:
        self._inference = inference
        self._non_finite = non_finite

    async def whole(self, request: web.Request) -> web.StreamResponse:
        (model, version), value = place_of(request), await _object_in(request)
        response = await informed(self._inference, model, version, lambda info: self._one(info, requested(info, version, value)))
        text = await _in_thread_if(sum(len(tensor.data) for tensor in response.outputs), partial(generated, response, self._non_finite))
        return compressed(request, bytes_answer(text, JSON))

    async def stream(self, request: web.Request) -> web.StreamResponse:
        (model, version), value = place_of(request), await _object_in(request)
        try:
            answers, first = await informed(self._inference, model, version, lambda info: self._begun(info, version, value))
        except InferenceFailed as failed:
            if failed.failure is not Failure.INTERNAL:
                raise
            note(error=failed.text, reason=failed.reason)  # the model's own first answer
            return web.Response(body=_error(failed.text), status=status_of(failed), headers=stream_headers(EVENTS))
        async with aclosing(answers):
            return await self._sent(request, answers, first)

    async def _one(self, info: ModelInfo, asked: InferRequest) -> InferResponse:
        if not info.is_decoupled:
            return await self._inference.infer(asked)
        try:
            return await only(self._inference, asked)
        except NotOneAnswer as refused:
            raise HttpError(400, _NOT_ONE) from refused

    async def _begun(
        self, info: ModelInfo, version: str, value: Object
    ) -> tuple[AsyncGenerator[InferResponse, None], InferResponse | None]:
        """The answers to come, and the first one; None: there is none."""
        answers = self._inference.stream(requested(info, version, value))
        try:
            return answers, await anext(answers, None)
        except BaseException:
            await answers.aclose()
            raise

    async def _sent(
        self, request: web.Request, answers: AsyncGenerator[InferResponse, None], first: InferResponse | None
    ) -> web.StreamResponse:
        stream = Stream(request, EVENTS)
        event = b"" if first is None else self._event(first)  # one that cannot be written is an ordinary error
        while True:
            await stream.write(event)
            try:
                response = await anext(answers, None)
                if response is None:
                    break
                event = self._event(response)
            except (InferenceFailed, HttpError) as failed:
                note(error=failed.text)
                await stream.write(_error(failed.text))
                break
        return stream.response

    def _event(self, response: InferResponse) -> bytes:
        """Nothing for an answer that only says that the stream has ended."""
        if response.is_final and not response.outputs:
            return b""
        return b"data: %s\n\n" % generated(response, self._non_finite)


async def _object_in(request: web.Request) -> Object:
    body = await body_of(request)
    return await _in_thread_if(len(body), partial(object_of, body))


async def _in_thread_if(size_bytes: int, work: partial[Result]) -> Result:
    """The event loop has other requests while a large text is read or written."""
    return work() if size_bytes <= LARGE_BYTES else await asyncio.get_running_loop().run_in_executor(None, work)


def _error(text: str) -> bytes:
    return b"data: %s\n\n" % orjson.dumps({"error": text})
