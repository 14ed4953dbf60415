"""
SageMaker's multi-model contract, over the lifecycle that ModelMesh's calls have too.

An error's body has what each kind of client looks for: `error`, and `code`, `type` and `message` as multi-model-server writes them.

Schemas of predictions: V2 as JSON, V2 with binary data (the content type of NVIDIA's container), a raw body for a model with one input; and
of language models LMI, or Triton's generate extension. JSON says by its form which it is: `inputs` that are objects are V2's, a text or a
list of texts is LMI's, an object without `inputs` is generate's.
Source: Triton server `docs/protocol` and `sagemaker_server.cc` for the content type; its script `serve` for the variable.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Any

from aiohttp import web

from adapter.errors import NoCapacity, ServerUnavailable
from adapter.fronts import llm
from adapter.fronts.answers import JSON, UNAVAILABLE, HttpError, bytes_answer, json_answer
from adapter.fronts.asking import obstacle_of
from adapter.fronts.bodies import body_of, off_loop_if_large, parsed, take_for_parsing
from adapter.fronts.edge import REPOSITORY, Front, Route
from adapter.fronts.memory import is_out_of_memory
from adapter.fronts.openapi import BINARY as BYTES
from adapter.fronts.openapi import OBJECT, TEXT, operation, shaped
from adapter.fronts.sagemaker.models import Table, checked_name, not_found
from adapter.fronts.v2 import generate
from adapter.fronts.v2.infer import Wanted, inferred
from adapter.fronts.v2.requests import header_length
from adapter.inference import Failure, InferenceFailed
from adapter.serving import KnownModel, Models
from adapter.settings.fronts import SageMakerSettings
from adapter.triton.inference.client import TritonInference

BINARY = "application/vnd.sagemaker-triton.binary+json"
_BINARY = re.compile(re.escape(BINARY) + r"\s*;\s*json-header-size=(.*)", re.IGNORECASE | re.DOTALL)
_THEIR_FAULT = (Failure.INVALID, Failure.UNSUPPORTED)
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
_TYPES = {
    404: "ModelNotFoundException",
    405: "MethodNotAllowedException",
    409: "ConflictStatusException",
    413: "RequestEntityTooLargeException",
    415: "UnsupportedMediaTypeException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
    504: "RequestTimeoutException",
    507: "InsufficientStorageException",
}
_PAGE = {"limit": {"type": "integer", "minimum": 1, "maximum": 100}, "next_page_token": TEXT}
_LOAD = shaped("model_name", "url", model_name=TEXT, url=TEXT)
_INVOKE = operation("Ask a model", body=OBJECT, types=(JSON, BYTES))


def front(settings: SageMakerSettings, models: Models, inference: TritonInference, answering: llm.Answering, *, non_finite: str) -> Front:
    """The front of SageMaker's multi-model contract; `answering` is for language models, `non_finite` as V2_NON_FINITE."""
    table, invoking = Table(settings, models), Invoking(settings, models, inference, answering, non_finite)

    async def ping(_request: web.Request) -> web.Response:
        obstacle = await obstacle_of(models, inference)
        if obstacle is None:
            return json_answer({"status": "Healthy"})
        return json_answer({"status": "Unhealthy", "error": obstacle}, UNAVAILABLE)

    routes = [
        Route("GET", "/ping", ping, "health", operation("Whether models can be loaded and asked")),
        Route("GET", "/models", table.list, REPOSITORY, operation("The models that serve", query=_PAGE)),
        Route("POST", "/models", table.load, REPOSITORY, operation("Load a model", body=_LOAD)),
        Route("GET", "/models/{name}", table.get, REPOSITORY, operation("One model")),
        Route("DELETE", "/models/{name}", table.unload, REPOSITORY, operation("Unload a model")),
        Route("POST", "/models/{name}/invoke", invoking.invoke, "inference", _INVOKE),
        Route("POST", "/invocations", invoking.invocations, "inference", _INVOKE),
    ]
    if settings.has_local_endpoints:
        routes.append(Route("POST", "/endpoints/{endpoint}/invocations", invoking.invocations, "inference", _INVOKE))
    return Front(name="sagemaker", title="SageMaker's multi-model contract", routes=routes, fails=_fails, echoed=(ATTRIBUTES,))


def _fails(_request: web.BaseRequest, status: int, text: str) -> web.Response:
    kind = _TYPES.get(status, "BadRequestException")
    return json_answer({"error": text, "code": status, "type": kind, "message": text}, status)


class Invoking:
    """Handlers of invocations."""

    def __init__(
        self, settings: SageMakerSettings, models: Models, inference: TritonInference, answering: llm.Answering, non_finite: str
    ) -> None:
        self._schema = settings.schema
        self._answering = answering
        self._models = models
        self._inference = inference
        self._non_finite = non_finite
        self._is_as_triton = settings.answers_as == "triton"

    async def invoke(self, request: web.Request) -> web.StreamResponse:
        """POST /models/{name}/invoke."""
        return await self._answered(request, checked_name(request))

    async def invocations(self, request: web.Request) -> web.StreamResponse:
        """POST /invocations: the model that Target-Model names, or the only one."""
        target = llm.target_of(request)
        if target is not None:
            return await self._answered(request, target)
        serving = [model.name for model in self._models.known() if model.is_serving]
        if len(serving) != 1:
            raise HttpError(400, f"{llm.TARGET} must name the model: {len(serving)} models are loaded")
        return await self._answered(request, serving[0])

    async def _answered(self, request: web.Request, name: str) -> web.StreamResponse:
        self._serving(name)
        content_type = request.headers.get("Content-Type", "")
        is_binary = _BINARY.fullmatch(content_type.strip())
        body = await body_of(request)
        model = self._serving(name)  # a DELETE may have come before the end of the body
        try:
            if is_binary is None and _is_json(content_type):
                return await self._of_json(request, model, body)
            length = header_length(is_binary[1], len(body), "json-header-size") if is_binary else 0
            take_for_parsing(request, body, length)
            return _written(*await inferred(self._inference, self._wanted(model), body, length))
        except InferenceFailed as failed:
            raise self._told(failed, model, body) from failed

    async def _of_json(self, request: web.Request, model: KnownModel, body: bytes) -> web.StreamResponse:
        if self._schema != "infer":
            return await self._generated(request, model, body, is_stream=self._schema == "generate_stream")
        take_for_parsing(request, body)
        value = await off_loop_if_large(len(body), partial(parsed, body))
        inputs = value.get("inputs") if isinstance(value, dict) else None
        if isinstance(inputs, str) or (isinstance(inputs, list) and inputs and all(isinstance(entry, str) for entry in inputs)):
            return await self._answering.answer(request, model, partial(_as_it_is, value))
        if isinstance(value, dict) and "inputs" not in value and llm.PROMPT in value:
            return await self._generated(request, model, body, is_stream=value.get("stream") is True)
        return _written(*await inferred(self._inference, self._wanted(model), body, None, value))

    async def _generated(self, request: web.Request, model: KnownModel, body: bytes, *, is_stream: bool) -> web.StreamResponse:
        take_for_parsing(request, body)
        value = await off_loop_if_large(len(body), partial(generate.object_of, body))
        if is_stream:
            return await generate.streamed(self._inference, self._wanted(model), value, request)
        return await generate.whole(self._inference, self._wanted(model), value)

    def _wanted(self, model: KnownModel) -> Wanted:
        return Wanted(model=model.model_id, name=model.name, non_finite=self._non_finite)

    def _serving(self, name: str) -> KnownModel:
        model = self._models.find(name)
        if model is not None and model.is_coming_back:
            raise ServerUnavailable(f"the model {name!r} is being loaded again: Triton has restarted")
        if model is None or not model.is_serving:
            raise not_found(name)
        return model

    def _told(self, failed: InferenceFailed, model: KnownModel, body: bytes) -> Exception:
        if failed.failure is Failure.NOT_FOUND:
            return not_found(model.name)
        is_theirs = failed.failure in _THEIR_FAULT  # such a text quotes the caller, who may have named a tensor so
        names, said = (model.name, model.model_id), body.decode("utf-8", "replace")
        if not is_theirs and is_out_of_memory(failed.text, names, is_load=False, said=said):
            return NoCapacity(failed.text)
        if is_theirs or (self._is_as_triton and failed.failure is Failure.INTERNAL):
            return HttpError(400, failed.text)
        return failed


def _written(body: bytes, length: int | None) -> web.Response:
    return bytes_answer(body, JSON if length is None else f"{BINARY};json-header-size={length}")


async def _as_it_is(value: Any) -> Any:
    return value


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("", JSON, "text/json") or kind.endswith("+json")
