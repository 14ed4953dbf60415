"""How a model is asked for one answer: at once, or as a stream of which exactly one answer comes."""

from __future__ import annotations

from contextlib import aclosing

from adapter.fronts.answers import HttpError
from adapter.inference import Failure, Inference, InferenceFailed, InferRequest, InferResponse


async def one(inference: Inference, request: InferRequest) -> InferResponse:
    """
    The model's only answer; a decoupled model is asked by a stream.

    Raises:
        HttpError: 400: a decoupled model gave none, or more than one.
        InferenceFailed: as `Inference.infer`.
    """
    try:
        return await inference.infer(request)
    except InferenceFailed as failed:
        if failed.failure is not Failure.UNSUPPORTED or "decoupled" not in failed.text:
            raise
    return await _one_of_a_stream(inference, request)


async def _one_of_a_stream(inference: Inference, request: InferRequest) -> InferResponse:
    found: InferResponse | None = None
    async with aclosing(inference.stream(request)) as answers:
        async for answer in answers:
            if not answer.outputs and answer.is_final:
                break
            if found is not None:
                raise HttpError(400, "the model gave more than one answer; ask it by generate_stream")
            found = answer
    if found is None:
        raise HttpError(400, "the model gave no answer; exactly one was expected")
    return found
