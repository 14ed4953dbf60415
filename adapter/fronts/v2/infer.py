"""One inference over HTTP: body → request → model → body. For the V2 front, and for others that carry V2 in paths of their own."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from adapter.fronts.asking import informed, one
from adapter.fronts.bodies import LARGE_BYTES, parsed
from adapter.fronts.v2.requests import Asked, asked, raw
from adapter.fronts.v2.responses import Written, written
from adapter.inference import Inference


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


async def _answered(inference: Inference, wanted: Wanted, asking: Asked) -> Written:
    response = replace(await one(inference, asking.request), model=wanted.name or wanted.model)
    if sum(len(tensor.data) for tensor in response.outputs) <= LARGE_BYTES:
        return written(response, asking, wanted.non_finite)
    return await asyncio.get_running_loop().run_in_executor(None, written, response, asking, wanted.non_finite)


async def _asked(wanted: Wanted, body: bytes, length: int | None) -> Asked:
    """A large text is parsed in a thread: the event loop has other requests."""

    def parse() -> Asked:
        if length is None:
            return asked(wanted.model, wanted.version, parsed(body), memoryview(b""))
        return asked(wanted.model, wanted.version, parsed(body[:length]), memoryview(body)[length:])

    if (len(body) if length is None else length) <= LARGE_BYTES:
        return parse()
    return await asyncio.get_running_loop().run_in_executor(None, parse)
