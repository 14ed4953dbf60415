"""
One inference over HTTP: body → request → model → body. For the V2 front, and for others that carry V2 in paths of their own.

A body is JSON, or JSON with binary data behind it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson
from aiohttp import web

from adapter.fronts.answers import HttpError
from adapter.fronts.asking import informed, one
from adapter.fronts.bodies import off_loop_if_large, parsed
from adapter.fronts.edge import name_in
from adapter.fronts.tensors import as_json
from adapter.fronts.v2.requests import Asked, asked, raw
from adapter.inference import InferRequest, InferResponse
from adapter.triton.inference.client import TritonInference

CLASSIFICATION = "classification"
"""Parameter of an output. Source: Triton's classification extension."""
PLACES = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
_LONGEST_VERSION = 18


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which model is asked, and how its answer is written."""

    model: str
    """Triton's name of it."""
    version: str = ""
    name: str = ""
    """What its caller calls it, where that is another name."""


Written = tuple[bytes, int | None]
"""A body, and its bytes of JSON before the binary data; None: there is none."""


def place_of(request: web.Request) -> tuple[str, str]:
    """
    Name and version of the model that a path names; no version: the empty text.

    Raises:
        HttpError: 400: the name is no UTF-8, or the version no number.
    """
    version = request.match_info.get("version", "")
    if "version" in request.match_info and not (version.isascii() and version.isdigit() and len(version) <= _LONGEST_VERSION):
        raise HttpError(400, "the version in the path must be a number")
    return name_in(request), version


async def inferred(inference: TritonInference, wanted: Wanted, body: bytes, length: int | None, value: Any = None) -> Written:
    """
    The whole of it.

    Args:
        inference: the server.
        wanted: which model.
        body: all of it.
        length: bytes of JSON before the binary data: None for all of the body, 0 for a raw request.
        value: what the JSON is, where it is parsed already.

    Raises:
        HttpError: 400: the body is no request.
        InferenceFailed: as `TritonInference.infer`.
    """
    if length == 0:
        return await informed(
            inference, wanted.model, wanted.version, lambda info: _answered(inference, wanted, raw(info, wanted.version, body))
        )
    end = len(body) if length is None else length

    def understood() -> Asked:
        return asked(wanted.model, wanted.version, parsed(body[:end]) if value is None else value, memoryview(body)[end:])

    return await _answered(inference, wanted, await off_loop_if_large(end, understood))


async def _answered(inference: TritonInference, wanted: Wanted, asking: Asked) -> Written:
    await _check_classes(inference, asking.request)
    response = replace(await one(inference, asking.request), model=wanted.name or wanted.model)
    texts_bytes = sum(len(tensor.data) for tensor in response.outputs if not asking.is_binary(tensor.name))
    return await off_loop_if_large(texts_bytes, lambda: written(response, asking))


async def _check_classes(inference: TritonInference, request: InferRequest) -> None:
    """Triton 2.51 dies of classes that are wanted of texts, so what is known of the model must be new. Raises HttpError 400."""
    names = {name for name, parameters in request.outputs.items() if CLASSIFICATION in parameters}
    if names:
        info = await inference.model_info(request.model, request.version)
        for output in info.outputs:
            if output.name in names and output.datatype == "BYTES":
                raise HttpError(400, f"output {output.name!r} has texts, which have no classification")


def written(response: InferResponse, asked: Asked) -> Written:
    """
    The answer in the form that was asked for.

    Raises:
        HttpError: as `tensors.as_json`.
    """
    binary: list[bytes] = []
    outputs = []
    for tensor in response.outputs:
        entry: dict[str, Any] = {"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape}
        parameters: Mapping[str, Any] = tensor.parameters
        if asked.is_binary(tensor.name):
            binary.append(tensor.data)
            parameters = {**parameters, "binary_data_size": len(tensor.data)}
        else:
            text = as_json(f"output {tensor.name!r}", tensor.datatype, tensor.data, is_base64=tensor.name in asked.base64)
            entry["data"] = orjson.Fragment(text)
        outputs.append(entry | ({"parameters": parameters} if parameters else {}))
    value: dict[str, Any] = {"id": response.id} if response.id else {}
    value |= {"model_name": response.model, "model_version": response.version}
    if response.parameters:
        value["parameters"] = response.parameters
    text = orjson.dumps({**value, "outputs": outputs})
    if not binary:
        return text, None
    return b"".join((text, *binary)), len(text)
