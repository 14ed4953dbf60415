"""
Predictions of the multi-model contract: which model, which schema, and what a failure means to the platform.

Schemas: V2 as JSON, V2 with binary data (the content type of NVIDIA's container), or a raw body for a model with one input.
Source: Triton server `docs/protocol` and `sagemaker_server.cc` for the content type.
"""

from __future__ import annotations

import re

from aiohttp import web

from adapter.errors import NoCapacity, ServerUnavailable
from adapter.fronts.answers import JSON, HttpError, bytes_answer
from adapter.fronts.bodies import body_of
from adapter.fronts.memory import is_out_of_memory
from adapter.fronts.sagemaker.table import checked_name, not_found
from adapter.fronts.v2.infer import Wanted, inferred
from adapter.fronts.v2.requests import header_length
from adapter.inference import Failure, Inference, InferenceFailed
from adapter.serving import KnownModel, Models
from adapter.settings import SageMakerSettings

TARGET = "X-Amzn-SageMaker-Target-Model"
BINARY = "application/vnd.sagemaker-triton.binary+json"
_BINARY = re.compile(re.escape(BINARY) + r"\s*;\s*json-header-size=(.*)", re.IGNORECASE | re.DOTALL)
_THEIR_FAULT = (Failure.INVALID, Failure.UNSUPPORTED)


class Invoking:
    """Handlers of invocations."""

    def __init__(self, settings: SageMakerSettings, models: Models, inference: Inference, non_finite: str) -> None:
        self._models = models
        self._inference = inference
        self._non_finite = non_finite
        self._is_as_triton = settings.answers_as == "triton"

    async def invoke(self, request: web.Request) -> web.Response:
        """POST /models/{name}/invoke."""
        return await self._answered(request, checked_name(request))

    async def invocations(self, request: web.Request) -> web.Response:
        """POST /invocations: the model that Target-Model names, or the only one."""
        target = request.headers.get(TARGET)
        if target is not None:
            return await self._answered(request, target)
        serving = [model.name for model in self._models.known() if model.is_serving]
        if len(serving) != 1:
            raise HttpError(400, f"{TARGET} must name the model: {len(serving)} models are loaded")
        return await self._answered(request, serving[0])

    async def _answered(self, request: web.Request, name: str) -> web.Response:
        model = self._serving(name)
        body = await body_of(request)
        content_type = request.headers.get("Content-Type", "")
        is_binary = _BINARY.fullmatch(content_type.strip())
        length = header_length(is_binary[1], len(body)) if is_binary else None if _is_json(content_type) else 0
        wanted = Wanted(model=model.model_id, name=name, non_finite=self._non_finite)
        try:
            found = await inferred(self._inference, wanted, body, length)
        except InferenceFailed as failed:
            raise self._told(failed, model) from failed
        if found.header_length is None:
            return bytes_answer(found.body, found.content_type)
        return bytes_answer(found.body, f"{BINARY};json-header-size={found.header_length}")

    def _serving(self, name: str) -> KnownModel:
        model = self._models.find(name)
        if model is not None and model.is_coming_back:
            raise ServerUnavailable(f"the model {name!r} is being loaded again: Triton has restarted")
        if model is None or not model.is_serving:
            raise not_found(name)
        return model

    def _told(self, failed: InferenceFailed, model: KnownModel) -> Exception:
        if is_out_of_memory(failed.text, (model.name, model.model_id), is_load=False):
            return NoCapacity(failed.text)
        if failed.failure is Failure.NOT_FOUND:
            return not_found(model.name)
        if failed.failure in _THEIR_FAULT or (self._is_as_triton and failed.failure is Failure.INTERNAL):
            return HttpError(400, failed.text)
        return failed


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("", JSON) or kind.endswith("+json")
