"""
The V2 inference protocol over HTTP, in front of Triton, or of ModelMesh.

Errors are `{"error": text}` and nothing else. Source: the V2 predict protocol, and Triton's extensions of it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from aiohttp import web

from adapter.errors import AdapterError
from adapter.fronts.accept import takes_json
from adapter.fronts.answers import JSON, UNAVAILABLE, HttpError, bytes_answer, compressed, json_answer
from adapter.fronts.asking import look_up
from adapter.fronts.bodies import body_of
from adapter.fronts.budget import take_for_parsing
from adapter.fronts.edge import Front, Route
from adapter.fronts.openapi import BINARY, operation
from adapter.fronts.v2 import generate, repository
from adapter.fronts.v2.described import INFER
from adapter.fronts.v2.infer import Wanted, inferred
from adapter.fronts.v2.places import PLACES, place_of
from adapter.fronts.v2.requests import HEADER_LENGTH, header_length
from adapter.inference import Inference, ModelInfo, TensorInfo
from adapter.lifecycle.repository_api import RepositoryCalls
from adapter.settings.fronts import V2Settings

SERVED = ("classification", "sequence", "model_configuration", "binary_tensor_data", "parameters", "statistics")
"""Extensions of Triton that this front serves. Source: names in Triton's ServerMetadata."""


def front(settings: V2Settings, inference: Inference, triton: Inference, repository_api: RepositoryCalls | None = None) -> Front:
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


def _fails(_request: web.BaseRequest, status: int, text: str, _error: AdapterError | None) -> web.Response:
    return json_answer({"error": text}, status)


def _routes(handlers: _Handlers) -> list[Route]:
    found = [
        Route(method="GET", path="/v2/health/live", handler=handlers.live, api="health", about=operation("Whether the server lives")),
        Route(method="GET", path="/v2/health/ready", handler=handlers.ready, api="health", about=operation("Whether the server serves")),
        Route(method="GET", path="/v2", handler=handlers.server, api="metadata", about=operation("What the server is")),
        Route(
            method="GET",
            path="/v2/models/stats",
            handler=handlers.all_statistics,
            api="statistics",
            about=operation("Statistics of all models"),
        ),
    ]
    for place in PLACES:
        found += [
            Route(method="GET", path=f"{place}/ready", handler=handlers.model_ready, api="health", about=operation("Whether it serves")),
            Route(method="GET", path=place, handler=handlers.model, api="metadata", about=operation("Its inputs and outputs")),
            Route(method="GET", path=f"{place}/config", handler=handlers.config, api="model-config", about=operation("Its config")),
            Route(method="GET", path=f"{place}/stats", handler=handlers.statistics, api="statistics", about=operation("Its statistics")),
            Route(
                method="POST",
                path=f"{place}/infer",
                handler=handlers.infer,
                api="inference",
                about=operation("One inference", body=INFER, types=(JSON, BINARY)),
            ),
        ]
    return found


class _Handlers:
    def __init__(self, settings: V2Settings, inference: Inference, triton: Inference, served: Collection[str]) -> None:
        self._served = served
        self._inference = inference
        self._triton = triton
        self._non_finite = settings.non_finite

    async def live(self, request: web.Request) -> web.Response:
        return await _health(request, "live", self._triton.is_live)

    async def ready(self, request: web.Request) -> web.Response:
        return await _health(request, "ready", self._triton.is_ready)

    async def server(self, _request: web.Request) -> web.Response:
        info = await self._triton.server_info()
        return json_answer(
            {"name": info.name, "version": info.version, "extensions": [name for name in info.extensions if name in self._served]}
        )

    async def model_ready(self, request: web.Request) -> web.Response:
        name, version = place_of(request)
        if not await self._inference.is_model_ready(name, version):
            raise HttpError(400, f"the model {name!r} is not ready")
        return _well(request, "ready")

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
        found = await inferred(self._inference, Wanted(model=model, version=version, non_finite=self._non_finite), body, length)
        headers = {} if found.header_length is None else {HEADER_LENGTH: str(found.header_length)}
        return compressed(request, bytes_answer(found.body, found.content_type, headers=headers))


async def _health(request: web.Request, word: str, ask: Callable[[], Awaitable[bool]]) -> web.Response:
    return _well(request, word) if await ask() else _answer_of_health(request, word, UNAVAILABLE)


def _well(request: web.Request, word: str) -> web.Response:
    return _answer_of_health(request, word, 200)


def _answer_of_health(request: web.Request, word: str, status: int) -> web.Response:
    """Empty, as the protocol wants it; for a client that names JSON, as KServe's, an object."""
    if takes_json(request.headers.getall("Accept", ())):
        return json_answer({word: status == 200}, status)
    return web.Response(status=status)


def _metadata(info: ModelInfo) -> Mapping[str, Any]:
    return {
        "name": info.name,
        "versions": list(info.versions),
        "platform": info.platform,
        "inputs": [_tensor(entry) for entry in info.inputs],
        "outputs": [_tensor(entry) for entry in info.outputs],
    }


def _tensor(info: TensorInfo) -> Mapping[str, Any]:
    return {"name": info.name, "datatype": info.datatype, "shape": list(info.shape)}
