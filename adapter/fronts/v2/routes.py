"""
The V2 inference protocol over HTTP, in front of Triton, or of ModelMesh, and the model repository API: index, load, unload.

Errors are `{"error": text}` and nothing else. The repository is shut unless V2_REPOSITORY_API opens it, and each call then says so.
Source: the V2 predict protocol, and Triton's extensions of it, as `docs/protocol/extension_model_repository.md`.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

import msgspec
from aiohttp import web

from adapter.errors import ServerUnavailable
from adapter.fronts.answers import BINARY, JSON, UNAVAILABLE, HttpError, bytes_answer, compressed, json_answer
from adapter.fronts.bodies import FREE_BYTES, structured
from adapter.fronts.edge import REPOSITORY, Front, Request, Route
from adapter.fronts.v2 import generate
from adapter.fronts.v2.infer import HEADER_LENGTH, PLACES, head_of, inferred
from adapter.lifecycle.repository_calls import RepositoryCalls
from adapter.model import Overrides, ServerModel
from adapter.serving import KnownModel, Models
from adapter.triton.inference.client import TritonInference

SERVED = ("classification", "sequence", "model_configuration", "binary_tensor_data", "parameters", "statistics")
"""Extensions of Triton that this front serves. Source: names in Triton's ServerMetadata."""
EXTENSIONS = ("model_repository", "model_repository(unload_dependents)")
RESTORE_SECONDS = 60.0
"""So long the front is not ready because of models that are being loaded again."""
_VERSION = re.compile(r"[0-9]{1,18}")
CONFIG, FILE = "config", "file:"
Question = Callable[[TritonInference, str, str], Awaitable[Mapping[str, Any]]]
"""Of a model and a version."""


def front(
    inference: TritonInference, triton: TritonInference, models: Models | None = None, repository_api: RepositoryCalls | None = None
) -> Front:
    """
    The front of V2 REST.

    Args:
        inference: the server behind it.
        triton: the pod's own, which says whether the pod is well: ModelMesh has no such call.
        models: the adapter's, where `inference` is the pod's own Triton.
        repository_api: None: its calls are refused.
    """
    served = SERVED if repository_api is None else (*SERVED, *EXTENSIONS)
    handlers = _Handlers(inference, triton, models, served, repository_api)
    routes = [
        Route("POST", "/v2/repository/index", handlers.index, REPOSITORY),
        Route("POST", "/v2/repository/models/{name}/load", handlers.load, REPOSITORY),
        Route("POST", "/v2/repository/models/{name}/unload", handlers.unload, REPOSITORY),
        Route("GET", "/v2/health/live", handlers.live, "health"),
        Route("GET", "/v2/health/ready", handlers.ready, "health"),
        Route("GET", "/v2", handlers.server, "metadata"),
        Route("GET", "/v2/models/stats", handlers.all_statistics, "statistics"),
    ]
    for place in PLACES:
        routes += [
            Route("GET", f"{place}/ready", handlers.model_ready, "health"),
            Route("GET", place, partial(handlers.told, question=TritonInference.model_metadata), "metadata"),
            Route("GET", f"{place}/config", partial(handlers.told, question=TritonInference.model_config), "model-config"),
            Route("GET", f"{place}/stats", partial(handlers.told, question=TritonInference.model_statistics), "statistics"),
            Route("POST", f"{place}/infer", handlers.infer, "inference"),
            Route("POST", f"{place}/generate", handlers.generate, "inference"),
            Route("POST", f"{place}/generate_stream", handlers.generate_stream, "inference"),
        ]
    return Front(name="v2", routes=routes, fails=_fails)


def _fails(_request: Request, status: int, text: str) -> web.Response:
    return json_answer({"error": text}, status)


@dataclass
class _Handlers:
    inference: TritonInference
    triton: TritonInference
    models: Models | None
    served: Collection[str]
    api: RepositoryCalls | None
    restoring_since: float | None = None
    """When a question for readiness first found that models were being loaded again."""

    async def live(self, request: Request) -> web.Response:
        return _health(request, "live", is_well=await self.triton.is_live())

    async def ready(self, request: Request) -> web.Response:
        is_here = self.models is None or (self.models.obstacle is None and not self._is_restoring(self.models))
        is_well = is_here and await self.triton.is_ready()
        return _health(request, "ready", is_well=is_well and (self.inference is self.triton or await self.inference.is_live()))

    def _is_restoring(self, models: Models) -> bool:
        """Whether models are being loaded again; some may never come back."""
        if not any(model.is_coming_back for model in models.known()):
            self.restoring_since = None
            return False
        self.restoring_since = self.restoring_since or monotonic()
        return monotonic() - self.restoring_since < RESTORE_SECONDS

    async def server(self, _request: Request) -> web.Response:
        info = await self.triton.server_info()
        extensions = [name for name in info.extensions if name in self.served]
        return json_answer({"name": info.name, "version": info.version, "extensions": extensions})

    async def model_ready(self, request: Request) -> web.Response:
        model = self._model(request)
        if not await self.inference.is_model_ready(model.model_id, model.version):
            raise HttpError(400, f"the model {model.name!r} is not ready")
        return _health(request, "ready", is_well=True)

    async def told(self, request: Request, *, question: Question) -> web.Response:
        model = self._model(request)
        return json_answer(await question(self.inference, model.model_id, model.version))

    async def all_statistics(self, _request: Request) -> web.Response:
        return json_answer(await self.inference.model_statistics())

    async def infer(self, request: Request) -> web.StreamResponse:
        model = self._model(request)
        if request.content_length is None or request.content_length > FREE_BYTES:
            await self.inference.model_info(model)  # a model that does not exist is told before a long body is read
        found, length = await inferred(self.inference, model, request, head_of(request.headers.get(HEADER_LENGTH)))
        answer = bytes_answer(found, JSON) if length is None else bytes_answer(found, BINARY, headers={HEADER_LENGTH: str(length)})
        return compressed(answer)

    async def generate(self, request: Request) -> web.StreamResponse:
        model = self._model(request)
        info = await self.inference.model_info(model)
        return compressed(await generate.whole(self.inference, model, await request.read_by(generate.meant, info, model.version)))

    async def generate_stream(self, request: Request) -> web.StreamResponse:
        model = self._model(request)
        asked = await request.read_by(generate.meant, await self.inference.model_info(model), model.version)
        return await generate.streamed_as_triton(self.inference, model, asked, request)

    def _model(self, request: Request) -> KnownModel:
        """The model that a path names. Raises HttpError 400; ServerUnavailable: it is being loaded again."""
        name, version = request.name, request.parts.get("version", "")
        if version and not _VERSION.fullmatch(version):
            raise HttpError(400, "the version in the path must be a number")
        model = None if self.models is None else self.models.find(name) or self.models.find_id(name)
        if model is not None and model.is_coming_back:
            raise ServerUnavailable(f"the model {name!r} is being loaded again: Triton has restarted")
        return replace(model or KnownModel(name, name), name=name, version=version)

    async def index(self, request: Request) -> web.Response:
        """POST /v2/repository/index."""
        api, asked = self._opened(), await request.read_by(structured, _Index)
        return json_answer([_row(row) for row in await api.index() if row.state == "READY" or not asked.ready])

    async def load(self, request: Request) -> web.Response:
        """POST /v2/repository/models/{name}/load."""
        api, name = self._opened(), request.name
        await api.load(name, await request.read_by(overrides_of))
        return web.Response()

    async def unload(self, request: Request) -> web.Response:
        """POST /v2/repository/models/{name}/unload."""
        api, name = self._opened(), request.name
        asked = await request.read_by(structured, _Unload)
        await api.unload(name, has_dependents=asked.parameters.unload_dependents)
        return web.Response()

    def _opened(self) -> RepositoryCalls:
        if self.api is None:
            raise HttpError(403, "the model repository API is shut: V2_REPOSITORY_API=true opens it")
        return self.api


def _health(request: Request, word: str, *, is_well: bool) -> web.Response:
    """Empty, as the protocol wants it; for a client that names JSON, as KServe's, an object."""
    status = 200 if is_well else UNAVAILABLE
    if JSON in ",".join(request.headers.getall("Accept", ())).lower():
        return json_answer({word: is_well}, status)
    return web.Response(status=status)


class _Index(msgspec.Struct):
    ready: bool = False


class _Load(msgspec.Struct):
    parameters: dict[str, str] = {}


class _Flags(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    unload_dependents: bool = False


class _Unload(msgspec.Struct):
    parameters: _Flags = _Flags()


def overrides_of(body: bytes) -> Overrides:
    """Of a request for a load. Raises HttpError: 400."""
    found: dict[str, str | bytes] = {}
    for key, value in structured(_Load, body).parameters.items():
        if key != CONFIG and not key.startswith(FILE):
            raise HttpError(400, f"there is no parameter {key!r} of a load; there are {CONFIG!r} and {FILE + '<version>/<name>'!r}")
        found[key] = value if key == CONFIG else _content(key, value)
    if found and CONFIG not in found:
        raise HttpError(400, f"the parameter {CONFIG!r} is missing: files that come with a load need it")
    return found


def _content(key: str, text: str) -> bytes:
    place = key.removeprefix(FILE)
    parts = place.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in place or "\\" in place:
        raise HttpError(400, f"the parameter {key!r} must name a file inside the model: {FILE + '<version>/<name>'!r}")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise HttpError(400, f"the parameter {key!r} is not base64") from None


def _row(row: ServerModel) -> Mapping[str, str]:
    """Without what Triton does not tell."""
    return {key: value for key, value in row._asdict().items() if value or key == "name"}
