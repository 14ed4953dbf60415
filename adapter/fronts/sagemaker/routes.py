"""
SageMaker's multi-model contract, over the lifecycle that ModelMesh's calls have too.

An error's body has what each kind of client looks for: `error`, and `code`, `type` and `message` as multi-model-server writes them.
"""

from __future__ import annotations

from aiohttp import web

from adapter.errors import AdapterError
from adapter.fronts.answers import JSON, UNAVAILABLE, json_answer
from adapter.fronts.asking import obstacle_of
from adapter.fronts.edge import Front, Route
from adapter.fronts.guards import REPOSITORY
from adapter.fronts.llm import Answering
from adapter.fronts.openapi import BINARY, OBJECT, TEXT, operation
from adapter.fronts.sagemaker.invoking import Invoking
from adapter.fronts.sagemaker.table import Table
from adapter.inference import Inference
from adapter.serving import Models
from adapter.settings.fronts import SageMakerSettings

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
_LOAD = {"type": "object", "required": ["model_name", "url"], "properties": {"model_name": TEXT, "url": TEXT}}
_INVOKE = operation("Ask a model", body=OBJECT, types=(JSON, BINARY))


def front(settings: SageMakerSettings, models: Models, inference: Inference, answering: Answering, *, non_finite: str) -> Front:
    """The front of SageMaker's multi-model contract; `answering` is for language models, `non_finite` as V2_NON_FINITE."""
    table, invoking = Table(settings, models), Invoking(settings, models, inference, answering, non_finite)

    async def ping(_request: web.Request) -> web.Response:
        obstacle = await obstacle_of(models, inference)
        if obstacle is None:
            return json_answer({"status": "Healthy"})
        return json_answer({"status": "Unhealthy", "error": obstacle}, UNAVAILABLE)

    routes = [
        Route(method="GET", path="/ping", handler=ping, api="health", about=operation("Whether models can be loaded and asked")),
        Route(method="GET", path="/models", handler=table.list, api=REPOSITORY, about=operation("The models that serve", query=_PAGE)),
        Route(method="POST", path="/models", handler=table.load, api=REPOSITORY, about=operation("Load a model", body=_LOAD)),
        Route(method="GET", path="/models/{name}", handler=table.get, api=REPOSITORY, about=operation("One model")),
        Route(method="DELETE", path="/models/{name}", handler=table.unload, api=REPOSITORY, about=operation("Unload a model")),
        Route(method="POST", path="/models/{name}/invoke", handler=invoking.invoke, api="inference", about=_INVOKE),
        Route(method="POST", path="/invocations", handler=invoking.invocations, api="inference", about=_INVOKE),
    ]
    if settings.has_local_endpoints:
        path = "/endpoints/{endpoint}/invocations"
        routes.append(Route(method="POST", path=path, handler=invoking.invocations, api="inference", about=_INVOKE))
    return Front(name="sagemaker", title="SageMaker's multi-model contract", routes=routes, fails=_fails, echoed=(ATTRIBUTES,))


def _fails(_request: web.BaseRequest, status: int, text: str, _error: AdapterError | None) -> web.Response:
    kind = _TYPES.get(status, "BadRequestException")
    return json_answer({"error": text, "code": status, "type": kind, "message": text}, status)
