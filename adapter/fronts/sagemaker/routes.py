"""
SageMaker's multi-model contract, over the lifecycle that ModelMesh's calls have too.

An error's body has what each kind of client looks for: `error`, and `code`, `type` and `message` as multi-model-server writes them.
"""

from __future__ import annotations

from aiohttp import web

from adapter.fronts.answers import JSON, UNAVAILABLE, json_answer
from adapter.fronts.asking import obstacle_of
from adapter.fronts.edge import REPOSITORY, Front, Route
from adapter.fronts.llm import Answering
from adapter.fronts.openapi import BINARY, OBJECT, TEXT, operation, shaped
from adapter.fronts.sagemaker.invoking import Invoking
from adapter.fronts.sagemaker.models import Table
from adapter.serving import Models
from adapter.settings.fronts import SageMakerSettings
from adapter.triton.inference.client import TritonInference

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
_INVOKE = operation("Ask a model", body=OBJECT, types=(JSON, BINARY))


def front(settings: SageMakerSettings, models: Models, inference: TritonInference, answering: Answering, *, non_finite: str) -> Front:
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
