"""
`generate` and `generate_stream`: flat JSON in, flat JSON out; the latter as server-sent events, each as soon as it is there.

What fails before the model has been asked is an ordinary error. The status of a stream is that of its first answer; an error that comes
later is an event of its own. What a client that leaves, or does not read, has asked for is cancelled in Triton.

A key that is the name of an input is that tensor: one element, or a list of them. Every other key is a parameter of the request;
so it goes for the keys of the object `parameters`. Source: Triton's `docs/protocol/extension_generate.md`; for shapes, for elements that
stand alone, and for the texts that Triton's own tests look for: `http_server.cc`, `generate_endpoint_test.py`.
"""

from __future__ import annotations

import math
from contextlib import aclosing
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from adapter.fronts.answers import JSON, HttpError, Stream, bytes_answer, event, status_of, stream_headers
from adapter.fronts.bodies import off_loop_if_large, parsed
from adapter.fronts.edge import Request
from adapter.fronts.tensors import as_json, packed
from adapter.fronts.v2.infer import Asked, Beside, checked, filled
from adapter.inference import DATATYPES, Failure, InferenceFailed, ModelInfo, Parameter, add_input, is_final, parameters_of, set_parameters
from adapter.serving import KnownModel
from adapter.stubs import service_pb2
from adapter.telemetry.logs import note
from adapter.triton.inference.client import TritonInference

EVENTS = "text/event-stream; charset=utf-8"
PARAMETERS = "parameters"
_ID = "id"
_KINDS = {"BYTES": (str, "attempt to access JSON non-string as string"), "BOOL": (bool, "attempt to access JSON non-boolean as boolean")}


async def whole(inference: TritonInference, model: KnownModel, asking: Asked) -> web.Response:
    """The model's only answer. Raises InferenceFailed, as `TritonInference.one`."""
    response = await inference.one(asking.request, asking.wire)
    size_bytes = sum(map(len, response.raw_output_contents))
    return bytes_answer(await off_loop_if_large(size_bytes, partial(generated, response, model.name)), JSON)


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
                await stream.write(_event(model, response))
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


def _event(model: KnownModel, response: Any) -> bytes:
    """Nothing for an answer that only says that the stream has ended."""
    if is_final(response) and not response.outputs:
        return b""
    return b"data: %s\n\n" % generated(response, model.name)


def meant(info: ModelInfo, version: str, body: bytes) -> Asked:
    """What a body asks of a model. Raises as `requested`."""
    return requested(info, version, parsed(body))


def requested(info: ModelInfo, version: str, value: Any) -> Asked:
    """
    What a parsed body asks of a model; whether inputs are missing, the model decides.

    Raises:
        HttpError: 400: no object, or with the name of the key that is wrong.
    """
    if not isinstance(value, dict):
        raise HttpError(400, "the body must be a JSON object")
    known = {entry.name: entry for entry in info.metadata.inputs}
    parameters: dict[str, Parameter] = {}
    request = service_pb2.ModelInferRequest(model_name=info.metadata.name, model_version=version)
    nested = value.get(PARAMETERS, {})
    if not isinstance(nested, dict) or PARAMETERS in known:
        raise HttpError(400, f"{PARAMETERS!r} must be an object, and cannot be the name of an input")
    own = {_ID, PARAMETERS} - known.keys()
    for key, given in [*((key, given) for key, given in value.items() if key not in own), *nested.items()]:
        if key in known:
            _add(request, known[key], given)
        elif isinstance(given, bool | int | float | str):
            parameters[key] = given
        else:
            raise HttpError(400, f"parameter {key!r} has invalid type: it must be a string, a number or a boolean")
    head = checked(Beside, {"id": value.get(_ID, "") if _ID not in known else "", "parameters": parameters})
    request.id = head.id
    set_parameters(request, head.parameters)
    return Asked(request=request)


def _add(request: Any, info: Any, given: Any) -> None:
    what = f"input {info.name!r}"
    data = given if isinstance(given, list) else [given]
    if info.datatype not in DATATYPES:
        raise HttpError(400, f"{what} has the datatype {info.datatype!r}, which JSON cannot carry")
    kind, words = _KINDS.get(info.datatype, (None, ""))
    if kind is not None and set(map(type, data)) - {kind}:
        raise HttpError(400, f"{what}: {words}")
    if any(isinstance(element, list) for element in data):
        raise HttpError(400, f"{what} must be one element, or a list of them")
    shape = filled(what, info.shape, len(data))
    add_input(request, info.name, info.datatype, shape, packed(what, info.datatype, data, len(data)))


def generated(response: Any, model: str) -> bytes:
    """
    An answer of this model as one line of JSON. Names of outputs give way to those of the protocol.

    Raises:
        HttpError: as `tensors.as_json`.
    """
    pairs = zip(response.outputs, response.raw_output_contents, strict=True)
    found: dict[str, Any] = {output.name: _written(output, data) for output, data in pairs}
    found |= parameters_of(response)
    found |= {"model_name": model, "model_version": response.model_version}
    if response.id:
        found[_ID] = response.id
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)


def _written(output: Any, data: bytes) -> orjson.Fragment:
    text = as_json(f"output {output.name!r}", output.datatype, data)
    return orjson.Fragment(text[1:-1] if math.prod(output.shape) == 1 else text)
