"""
The V2 inference protocol over HTTP, in front of Triton, or of ModelMesh.

Errors are `{"error": text}` and nothing else. Source: the V2 predict protocol, and Triton's extensions of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from aiohttp import web

from adapter.fronts.answers import JSON, UNAVAILABLE, HttpError, bytes_answer, compressed, json_answer, takes_json
from adapter.fronts.asking import look_up
from adapter.fronts.bodies import body_of, take_for_parsing
from adapter.fronts.edge import Front, Route
from adapter.fronts.openapi import BINARY, operation
from adapter.fronts.v2 import generate, repository
from adapter.fronts.v2.infer import PLACES, Wanted, inferred, place_of
from adapter.fronts.v2.requests import BODY, HEADER_LENGTH, header_length
from adapter.inference import ModelInfo, TensorInfo
from adapter.lifecycle.repository_api import RepositoryCalls
from adapter.settings.fronts import V2Settings
from adapter.triton.inference.client import TritonInference

SERVED = ("classification", "sequence", "model_configuration", "binary_tensor_data", "parameters", "statistics")
"""Extensions of Triton that this front serves. Source: names in Triton's ServerMetadata."""


def front(
    settings: V2Settings, inference: TritonInference, triton: TritonInference, repository_api: RepositoryCalls | None = None
) -> Front:
    """
    The front of V2 REST, before `inference`; whether the pod is well, its own `triton` says: ModelMesh has no such call.

    Without a `repository_api` those calls are refused.
    """
    served = SERVED if repository_api is None else (*SERVED, *repository.EXTENSIONS)
    routes = [
        *_routes(_Handlers(settings, inference, triton, served)),
        *generate.routes(inference, settings.non_finite),
        *repository.routes(repository_api),
    ]
    return Front(name="v2", title="V2 inference protocol", routes=routes, fails=_fails)


def _fails(_request: web.BaseRequest, status: int, text: str) -> web.Response:
    return json_answer({"error": text}, status)


def _routes(handlers: _Handlers) -> list[Route]:
    infer = operation("One inference", body=BODY, types=(JSON, BINARY))
    found = [
        Route("GET", "/v2/health/live", handlers.live, "health", operation("Whether the server lives")),
        Route("GET", "/v2/health/ready", handlers.ready, "health", operation("Whether the server serves")),
        Route("GET", "/v2", handlers.server, "metadata", operation("What the server is")),
        Route("GET", "/v2/models/stats", handlers.all_statistics, "statistics", operation("Statistics of all models")),
    ]
    for place in PLACES:
        found += [
            Route("GET", f"{place}/ready", handlers.model_ready, "health", operation("Whether it serves")),
            Route("GET", place, handlers.model, "metadata", operation("Its inputs and outputs")),
            Route("GET", f"{place}/config", handlers.config, "model-config", operation("Its config")),
            Route("GET", f"{place}/stats", handlers.statistics, "statistics", operation("Its statistics")),
            Route("POST", f"{place}/infer", handlers.infer, "inference", infer),
        ]
    return found


class _Handlers:
    def __init__(self, settings: V2Settings, inference: TritonInference, triton: TritonInference, served: Collection[str]) -> None:
        self._served = served
        self._inference = inference
        self._triton = triton
        self._non_finite = settings.non_finite

    async def live(self, request: web.Request) -> web.Response:
        return _health(request, "live", is_well=await self._triton.is_live())

    async def ready(self, request: web.Request) -> web.Response:
        return _health(request, "ready", is_well=await self._triton.is_ready())

    async def server(self, _request: web.Request) -> web.Response:
        info = await self._triton.server_info()
        return json_answer(
            {"name": info.name, "version": info.version, "extensions": [name for name in info.extensions if name in self._served]}
        )

    async def model_ready(self, request: web.Request) -> web.Response:
        name, version = place_of(request)
        if not await self._inference.is_model_ready(name, version):
            raise HttpError(400, f"the model {name!r} is not ready")
        return _health(request, "ready", is_well=True)

    async def model(self, request: web.Request) -> web.Response:
        return json_answer(_metadata(await self._inference.model_info(*place_of(request))))

    async def config(self, request: web.Request) -> web.Response:
        return json_answer(await self._inference.model_config(*place_of(request)))

    async def statistics(self, request: web.Request) -> web.Response:
        return json_answer(await self._inference.model_statistics(*place_of(request)))

    async def all_statistics(self, _request: web.Request) -> web.Response:
        return json_answer(await self._inference.model_statistics())

    async def infer(self, request: web.Request) -> web.StreamResponse:
        model, version = place_of(request)
        await look_up(request, self._inference, model, version)
        body = await body_of(request)
        length = header_length(request.headers.get(HEADER_LENGTH), len(body))
        take_for_parsing(request, body, length)
        found, length = await inferred(self._inference, Wanted(model=model, version=version, non_finite=self._non_finite), body, length)
        answer = bytes_answer(found, JSON) if length is None else bytes_answer(found, BINARY, headers={HEADER_LENGTH: str(length)})
        return compressed(request, answer)


def _health(request: web.Request, word: str, *, is_well: bool) -> web.Response:
    """Empty, as the protocol wants it; for a client that names JSON, as KServe's, an object."""
    status = 200 if is_well else UNAVAILABLE
    if takes_json(request.headers.getall("Accept", ())):
        return json_answer({word: is_well}, status)
    return web.Response(status=status)


def _metadata(info: ModelInfo) -> Mapping[str, Any]:
    return {
        "name": info.name,
        "versions": info.versions,
        "platform": info.platform,
        "inputs": [_tensor(entry) for entry in info.inputs],
        "outputs": [_tensor(entry) for entry in info.outputs],
    }


def _tensor(info: TensorInfo) -> Mapping[str, Any]:
    return {"name": info.name, "datatype": info.datatype, "shape": info.shape}
