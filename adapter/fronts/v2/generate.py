"""
`generate` and `generate_stream`: flat JSON in, flat JSON out; the latter as server-sent events, each as soon as it is there.

What fails before the model has been asked is an ordinary error. The status of a stream is that of its first answer; an error that comes
later is an event of its own. What a client that leaves, or does not read, has asked for is cancelled in Triton.
Source: Triton's `docs/protocol/extension_generate.md`.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial

import orjson
from aiohttp import web

from adapter.fronts.answers import JSON, HttpError, bytes_answer, compressed, status_of
from adapter.fronts.asking import NotOneAnswer, informed, look_up, only
from adapter.fronts.bodies import body_of, off_loop_if_large
from adapter.fronts.budget import take_for_parsing
from adapter.fronts.edge import Route
from adapter.fronts.openapi import operation
from adapter.fronts.streams import Stream, stream_headers
from adapter.fronts.v2.described import GENERATE
from adapter.fronts.v2.generating import Object, generated, object_of, requested
from adapter.fronts.v2.infer import Wanted
from adapter.fronts.v2.places import PLACES, place_of
from adapter.inference import Failure, Inference, InferenceFailed, InferResponse, ModelInfo
from adapter.telemetry.logs import note

EVENTS = "text/event-stream; charset=utf-8"
_NOT_ONE = "generate expects model to produce exactly 1 response, use generate_stream for a model that produces any other number"


def routes(inference: Inference, non_finite: str) -> Sequence[Route]:
    """The two calls, with a version in the path and without; `non_finite` as V2_NON_FINITE."""
    handlers = _Handlers(inference, non_finite)
    one, all_of_them = operation("One answer, as a flat object", body=GENERATE), operation("All answers, as events", body=GENERATE)
    found = []
    for place in PLACES:
        found += [
            Route(method="POST", path=f"{place}/generate", handler=handlers.whole, api="inference", about=one),
            Route(method="POST", path=f"{place}/generate_stream", handler=handlers.stream, api="inference", about=all_of_them),
        ]
    return found


class _Handlers:
    def __init__(self, inference: Inference, non_finite: str) -> None:
        self._inference = inference
        self._non_finite = non_finite

    async def whole(self, request: web.Request) -> web.StreamResponse:
        wanted, value = await self._read(request)
        answer = await whole(self._inference, wanted, value)
        return compressed(request, answer)

    async def stream(self, request: web.Request) -> web.StreamResponse:
        wanted, value = await self._read(request)
        try:
            return await streamed(self._inference, wanted, value, request)
        except InferenceFailed as failed:
            if failed.failure is not Failure.INTERNAL:
                raise
            note(error=failed.text, reason=failed.reason)  # the model's own first answer
            return web.Response(body=_error(failed.text), status=status_of(failed), headers=stream_headers(EVENTS))

    async def _read(self, request: web.Request) -> tuple[Wanted, Object]:
        model, version = place_of(request)
        await look_up(request, self._inference, model, version)
        body = await body_of(request)
        take_for_parsing(request, body)
        value = await off_loop_if_large(len(body), partial(object_of, body))
        return Wanted(model=model, version=version, non_finite=self._non_finite), value


async def whole(inference: Inference, wanted: Wanted, value: Object) -> web.Response:
    """
    The model's only answer.

    Raises:
        HttpError: 400: the object does not fit the model, or the model gave none, or more than one.
        InferenceFailed: as `Inference.infer`.
    """

    async def one(info: ModelInfo) -> InferResponse:
        asked = requested(info, wanted.version, value)
        if not info.is_decoupled:
            return await inference.infer(asked)
        try:
            return await only(inference, asked)
        except NotOneAnswer as refused:
            raise HttpError(400, _NOT_ONE) from refused

    response = await informed(inference, wanted.model, wanted.version, one)
    size_bytes = sum(len(tensor.data) for tensor in response.outputs)
    return bytes_answer(await off_loop_if_large(size_bytes, partial(_text, wanted, response)), JSON)


async def streamed(inference: Inference, wanted: Wanted, value: Object, request: web.Request) -> web.StreamResponse:
    """
    All answers, as events. A failure after the first one is an event.

    Raises:
        HttpError: 400: the object does not fit the model.
        InferenceFailed: before the first answer, or instead of it.
    """

    async def begun(info: ModelInfo) -> tuple[AsyncGenerator[InferResponse, None], InferResponse | None]:
        """The answers to come, and the first one; None: there is none."""
        answers = inference.stream(requested(info, wanted.version, value))
        try:
            return answers, await anext(answers, None)
        except BaseException:
            await answers.aclose()
            raise

    answers, first = await informed(inference, wanted.model, wanted.version, begun)
    async with aclosing(answers):
        event = b"" if first is None else _event(wanted, first)  # one that cannot be written is an ordinary error
        stream = Stream(request, EVENTS)
        while True:
            await stream.write(event)
            try:
                response = await anext(answers, None)
                if response is None:
                    return stream.response
                event = _event(wanted, response)
            except (InferenceFailed, HttpError) as failed:
                note(error=failed.text)
                await stream.write(_error(failed.text))
                return stream.response


def _event(wanted: Wanted, response: InferResponse) -> bytes:
    """Nothing for an answer that only says that the stream has ended."""
    if response.is_final and not response.outputs:
        return b""
    return b"data: %s\n\n" % _text(wanted, response)


def _text(wanted: Wanted, response: InferResponse) -> bytes:
    return generated(replace(response, model=wanted.name or wanted.model), wanted.non_finite)


def _error(text: str) -> bytes:
    return b"data: %s\n\n" % orjson.dumps({"error": text})
