"""
A model's answers as V2 has them: JSON, or JSON with binary data behind it; flat JSON; flat JSON as server-sent events, each at once.

For the V2 front, and for others that carry V2 in paths of their own. What fails before the model has been asked is an ordinary error. The
status of a stream is that of its first answer; an error that comes later is an event of its own. What a client that leaves, or does not
read, has asked for is cancelled in Triton. Source: as `requests`.
"""

from __future__ import annotations

import math
from contextlib import aclosing
from typing import Any

import orjson
from aiohttp import web

from adapter.fronts.answers import JSON, Stream, bytes_answer, event, stream_headers
from adapter.fronts.bodies import off_loop_if_large
from adapter.fronts.edge import Request
from adapter.fronts.failures import HttpError, status_of
from adapter.fronts.tensors import as_json
from adapter.fronts.v2.requests import Asked, meant
from adapter.inference import Failure, InferenceFailed, is_final, parameters_of
from adapter.serving import KnownModel
from adapter.telemetry.logs import note
from adapter.triton.inference.client import TritonInference

CLASSIFICATION = "classification"
"""Parameter of an output. Source: Triton's classification extension."""
EVENTS = "text/event-stream; charset=utf-8"
Written = tuple[bytes, int | None]
"""A body, and its bytes of JSON before the binary data; None: there is none."""


async def inferred(inference: TritonInference, model: KnownModel, request: Request, head: int | None) -> Written:
    """
    The whole of it.

    Args:
        inference: the server.
        model: which one.
        request: its body is not read yet.
        head: as `head_of`.

    Raises:
        HttpError: 400: the body is no request; and as `Request.read_by`.
        InferenceFailed: as `TritonInference.one`.
    """
    info = await inference.model_info(model) if head == 0 else None
    return await answer_to(inference, model, await request.read_by(meant, model.model_id, model.version, head, info, head=head))


async def answer_to(inference: TritonInference, model: KnownModel, asking: Asked) -> Written:
    """The answer in the form that was asked for. Raises as `inferred`."""
    await _check_classes(inference, model, asking.head)
    response = await inference.one(asking.head, asking.wire)
    return await off_loop_if_large(response.ByteSize(), lambda: _written(response, model, asking))


async def _check_classes(inference: TritonInference, model: KnownModel, request: Any) -> None:
    """Triton 2.51 dies of classes that are wanted of texts. Raises HttpError 400."""
    names = {output.name for output in request.outputs if CLASSIFICATION in output.parameters}
    if names:
        for output in (await inference.model_info(model)).metadata.outputs:
            if output.name in names and output.datatype == "BYTES":
                raise HttpError(400, f"output {output.name!r} has texts, which have no classification")


def _written(response: Any, model: KnownModel, asked: Asked) -> Written:
    """
    The answer in the form that was asked for.

    Raises:
        HttpError: as `tensors.as_json`.
    """
    binary: list[bytes] = []
    outputs = []
    for output, data in zip(response.outputs, response.raw_output_contents, strict=True):
        entry: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": list(output.shape)}
        parameters = parameters_of(output)
        if asked.is_binary(output.name):
            binary.append(data)
            parameters["binary_data_size"] = len(data)
        else:
            text = as_json(f"output {output.name!r}", output.datatype, data, is_base64=output.name in asked.base64)
            entry["data"] = orjson.Fragment(text)
        outputs.append(entry | ({"parameters": parameters} if parameters else {}))
    value: dict[str, Any] = {"id": response.id} if response.id else {}
    value |= {"model_name": model.name, "model_version": response.model_version}
    if parameters := parameters_of(response):
        value["parameters"] = parameters
    text = orjson.dumps({**value, "outputs": outputs})
    if not binary:
        return text, None
    return b"".join((text, *binary)), len(text)


# ---- flat JSON


async def whole(inference: TritonInference, model: KnownModel, asking: Asked) -> web.Response:
    """The model's only answer. Raises InferenceFailed, as `TritonInference.one`."""
    response = await inference.one(asking.head, asking.wire)
    return bytes_answer(await off_loop_if_large(response.ByteSize(), lambda: flat_written(response, model.name)), JSON)


async def streamed(inference: TritonInference, model: KnownModel, asking: Asked, request: Request) -> web.StreamResponse:
    """
    All answers, as events. A failure after the first one is an event.

    Raises:
        InferenceFailed: before the first answer, or instead of it.
    """
    stream = Stream(request, EVENTS)
    async with aclosing(inference.stream(asking.request)) as answers:
        try:
            async for response in answers:
                is_end = is_final(response) and not response.outputs  # it only says that the stream has ended
                await stream.write(b"" if is_end else b"data: %s\n\n" % flat_written(response, model.name))
        except (InferenceFailed, HttpError) as failed:
            if not stream.response.prepared:
                raise
            note(error=failed.text)
            await stream.write(event({"error": failed.text}))
    return stream.response


async def streamed_as_triton(inference: TritonInference, model: KnownModel, asking: Asked, request: Request) -> web.StreamResponse:
    """As `streamed`; where the model itself fails instead of its first answer, that is an event, too, with the failure's status."""
    try:
        return await streamed(inference, model, asking, request)
    except InferenceFailed as failed:
        if failed.failure is not Failure.INTERNAL:
            raise
        note(error=failed.text, reason=failed.reason)
        return web.Response(body=event({"error": failed.text}), status=status_of(failed), headers=stream_headers(EVENTS))


def flat_written(response: Any, model: str) -> bytes:
    """
    An answer of this model as one line of JSON. Names of outputs give way to those of the protocol.

    Raises:
        HttpError: as `tensors.as_json`.
    """
    found: dict[str, Any] = {}
    for output, data in zip(response.outputs, response.raw_output_contents, strict=True):
        text = as_json(f"output {output.name!r}", output.datatype, data)
        found[output.name] = orjson.Fragment(text[1:-1] if math.prod(output.shape) == 1 else text)
    found |= parameters_of(response)
    found |= {"model_name": model, "model_version": response.model_version}
    if response.id:
        found["id"] = response.id
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)
