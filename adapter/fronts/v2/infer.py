"""One inference over HTTP: body → request → model → body. For the V2 front, and for others that carry V2 in paths of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from adapter.fronts.answers import HttpError
from adapter.fronts.asking import informed, one
from adapter.fronts.bodies import off_loop_if_large, parsed
from adapter.fronts.v2.requests import Asked, asked, raw
from adapter.fronts.v2.responses import Written, written
from adapter.inference import Inference, InferRequest

CLASSIFICATION = "classification"
"""Parameter of an output. Source: Triton's classification extension."""


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """Which model is asked, and how its answer is written."""

    model: str
    """Triton's name of it."""
    version: str = ""
    name: str = ""
    """What its caller calls it, where that is another name."""
    non_finite: str
    """As V2_NON_FINITE."""


async def inferred(inference: Inference, wanted: Wanted, body: bytes, length: int | None) -> Written:
    """
    The whole of it; `length` is the number of bytes of JSON before the binary data: None for all of the body, 0 for a raw request.

    Raises:
        HttpError: 400: the body is no request.
        InferenceFailed: as `Inference.infer`.
    """
    if length == 0:
        return await informed(
            inference, wanted.model, wanted.version, lambda info: _answered(inference, wanted, raw(info, wanted.version, body))
        )
    return await _answered(inference, wanted, await _asked(wanted, body, length))


async def inferred_value(inference: Inference, wanted: Wanted, value: Any, size_bytes: int) -> Written:
    """
    The same for JSON that is parsed already, of so many bytes of text.

    Raises:
        HttpError, InferenceFailed: as `inferred`.
    """

    def understood() -> Asked:
        return asked(wanted.model, wanted.version, value, memoryview(b""))

    return await _answered(inference, wanted, await off_loop_if_large(size_bytes, understood))


async def _answered(inference: Inference, wanted: Wanted, asking: Asked) -> Written:
    await _check_classes(inference, asking.request)
    response = replace(await one(inference, asking.request), model=wanted.name or wanted.model)
    texts_bytes = sum(len(tensor.data) for tensor in response.outputs if not asking.is_binary(tensor.name))
    return await off_loop_if_large(texts_bytes, lambda: written(response, asking, wanted.non_finite))


async def _check_classes(inference: Inference, request: InferRequest) -> None:
    """Triton 2.51 dies of classes that are wanted of texts, so what is known of the model must be new. Raises HttpError 400."""
    names = {output.name for output in request.outputs if CLASSIFICATION in output.parameters}
    if names:
        info = await inference.model_info(request.model, request.version)
        for output in info.outputs:
            if output.name in names and output.datatype == "BYTES":
                raise HttpError(400, f"output {output.name!r} has texts, which have no classification")


async def _asked(wanted: Wanted, body: bytes, length: int | None) -> Asked:
    def parse() -> Asked:
        if length is None:
            return asked(wanted.model, wanted.version, parsed(body), memoryview(b""))
        return asked(wanted.model, wanted.version, parsed(body[:length]), memoryview(body)[length:])

    return await off_loop_if_large(len(body) if length is None else length, parse)
