"""Which model is asked, and how: for one answer, at once or as a stream of which exactly one answer comes."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

from adapter.errors import ModelNotLoaded, ServerUnavailable
from adapter.fronts.answers import HttpError
from adapter.inference import Failure, InferenceFailed, ModelInfo, is_final
from adapter.serving import KnownModel, Models
from adapter.triton.inference.client import TritonInference

NOT_FOUND = "Model not found: "
"""Of all fronts that have a text of their own for it; then comes the name."""


def serving(model: KnownModel | None, name: str) -> KnownModel:
    """
    A model that serves; `model` is what was found by this name.

    Raises:
        ServerUnavailable: it is being loaded again.
        ModelNotLoaded: it does not serve.
    """
    if model is not None and model.is_coming_back:
        raise ServerUnavailable(f"the model {name!r} is being loaded again: Triton has restarted")
    if model is None or not model.is_serving:
        raise ModelNotLoaded(f"{NOT_FOUND}{name}")
    return model


async def info_of(inference: TritonInference, model: KnownModel) -> ModelInfo:
    """What a model says of itself; as long as the adapter has placed it, it is asked once. Raises InferenceFailed."""
    return await inference.model_info(model.model_id, model.version, placed=model.placed)


async def obstacle_of(models: Models, inference: TritonInference) -> str | None:
    """Why no model can be asked now, in words; None: Triton answers, and its models are known. Within a second."""
    obstacle = models.obstacle
    if obstacle is None and not await inference.is_live():
        return "Triton does not answer"
    return obstacle


async def one(inference: TritonInference, request: Any, wire: bytes | None = None) -> Any:
    """
    The model's only answer; a decoupled model is asked by a stream.

    Raises:
        HttpError: 400: a decoupled model gave none, or more than one.
        InferenceFailed: as `TritonInference.infer`.
    """
    try:
        return await inference.infer(request, wire)
    except InferenceFailed as failed:
        if failed.failure is not Failure.UNSUPPORTED or "decoupled" not in failed.text:
            raise
    return await only(inference, request)


async def only(inference: TritonInference, request: Any, words: str | None = None) -> Any:
    """
    The only answer of a stream. A second one cancels it.

    Raises:
        HttpError: 400: it gave none, or more than one; `words` say so, or our own.
        InferenceFailed: as `TritonInference.stream`.
    """
    found = None
    async with aclosing(inference.stream(request)) as answers:
        async for answer in answers:
            if is_final(answer) and not answer.outputs:
                break
            if found is not None:
                raise HttpError(400, words or "the model gave more than one answer; ask it by generate_stream")
            found = answer
    if found is None:
        raise HttpError(400, words or "the model gave no answer; exactly one was expected")
    return found
