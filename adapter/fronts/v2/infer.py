"""One inference over HTTP: body → request → model → body. For the V2 front, and for others that carry V2 in paths of their own."""

from __future__ import annotations

import asyncio

from aiohttp import web

from adapter.fronts.answers import bytes_answer
from adapter.fronts.asking import one
from adapter.fronts.bodies import LARGE_BYTES, parsed
from adapter.fronts.v2.requests import HEADER_LENGTH, Asked, asked, header_length, raw
from adapter.fronts.v2.responses import Written, written
from adapter.inference import Inference, InferResponse

COMPRESSED_FROM_BYTES = 1024
"""A shorter answer is not compressed, though the client takes that."""


async def answered(
    request: web.Request, inference: Inference, model: str, version: str, body: bytes, *, non_finite: str
) -> web.StreamResponse:
    """
    The whole of it.

    Raises:
        HttpError: 400: the body is no request.
        InferenceFailed: as `Inference.infer`.
    """
    length = header_length(request.headers.get(HEADER_LENGTH), len(body))
    wanted = raw(await inference.model_info(model, version), version, body) if length == 0 else await _asked(model, version, body, length)
    found = await _written(await one(inference, wanted.request), wanted, non_finite)
    headers = {} if found.header_length is None else {HEADER_LENGTH: str(found.header_length)}
    answer = bytes_answer(found.body, found.content_type, headers=headers)
    if len(found.body) >= COMPRESSED_FROM_BYTES and "Accept-Encoding" in request.headers:
        answer.enable_compression()
    return answer


async def _asked(model: str, version: str, body: bytes, length: int | None) -> Asked:
    """A large text is parsed in a thread: the event loop has other requests."""

    def parse() -> Asked:
        if length is None:
            return asked(model, version, parsed(body), memoryview(b""))
        return asked(model, version, parsed(body[:length]), memoryview(body)[length:])

    if (len(body) if length is None else length) <= LARGE_BYTES:
        return parse()
    return await asyncio.get_running_loop().run_in_executor(None, parse)


async def _written(response: InferResponse, wanted: Asked, non_finite: str) -> Written:
    if sum(len(tensor.data) for tensor in response.outputs) <= LARGE_BYTES:
        return written(response, wanted, non_finite)
    return await asyncio.get_running_loop().run_in_executor(None, written, response, wanted, non_finite)
