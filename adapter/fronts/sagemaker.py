"""
SageMaker's multi-model contract, over the lifecycle that ModelMesh's calls have too.

An error's body has what each kind of client looks for: `error`, and `code`, `type` and `message` as multi-model-server writes them.

Schemas of predictions: V2 as JSON, V2 with binary data (the content type of NVIDIA's container), a raw body for a model with one input; and
of language models LMI, or Triton's generate extension. JSON says by its form which it is: `inputs` that are objects are V2's, a text or a
list of texts is LMI's, an object without `inputs` is generate's.
Sources: "Custom Containers Contract for Multi-Model Endpoints"; of `limit`: multi-model-server; of the content type: Triton server
`docs/protocol` and `sagemaker_server.cc`; of the variable: its script `serve`.
"""

from __future__ import annotations

import hashlib
import os.path
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any

from aiohttp import web

from adapter.errors import ModelNotLoaded, ModelRefused, NoCapacity
from adapter.fronts.answers import JSON, bytes_answer, json_answer
from adapter.fronts.edge import REPOSITORY, Front, Request, Route
from adapter.fronts.failures import UNAVAILABLE, HttpError, is_out_of_memory, structured
from adapter.fronts.llm.routes import TARGET, Answering, obstacle_of, target_of
from adapter.fronts.llm.schemas import Lmi
from adapter.fronts.parser import Load, meant
from adapter.fronts.v2.requests import head_of
from adapter.fronts.v2.routes import answer_to, inferred, streamed, whole
from adapter.inference import Failure, InferenceFailed
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import ModelSpec, Named, id_problem
from adapter.serving import NOT_FOUND, KnownModel, serving
from adapter.settings.fronts import SageMakerSettings
from adapter.telemetry.logs import note
from adapter.triton.inference.client import TritonInference

BINARY = "application/vnd.sagemaker-triton.binary+json"
_BINARY = re.compile(re.escape(BINARY) + r"\s*;\s*json-header-size=(.*)", re.IGNORECASE | re.DOTALL)
_THEIR_FAULT = (Failure.INVALID, Failure.UNSUPPORTED)
ATTRIBUTES = "X-Amzn-SageMaker-Custom-Attributes"
_TYPES = {400: "BadRequest", 404: "ModelNotFound", 409: "ConflictStatus", 500: "InternalServer", 504: "RequestTimeout"}
"""Where multi-model-server has another word than HTTP."""
MOST = 100
"""Of a page."""
_PLAIN = re.compile(r"[0-9A-Za-z._~-]{1,200}")


def front(settings: SageMakerSettings, models: RuntimeLifecycle, inference: TritonInference, answering: Answering) -> Front:
    """The front of SageMaker's multi-model contract; `answering` is for language models."""
    handlers = _Handlers(settings, models, inference, answering)
    routes = [
        Route("GET", "/ping", handlers.ping, "health"),
        Route("GET", "/models", handlers.list, REPOSITORY),
        Route("POST", "/models", handlers.load, REPOSITORY),
        Route("GET", "/models/{name}", handlers.get, REPOSITORY),
        Route("DELETE", "/models/{name}", handlers.unload, REPOSITORY),
        Route("POST", "/models/{name}/invoke", handlers.invoke, "inference"),
        Route("POST", "/invocations", handlers.invocations, "inference"),
    ]
    if settings.has_local_endpoints:
        routes.append(Route("POST", "/endpoints/{endpoint}/invocations", handlers.invocations, "inference"))
    return Front(name="sagemaker", routes=routes, fails=_fails, echoed=(ATTRIBUTES,))


@dataclass(frozen=True)
class _Handlers:
    settings: SageMakerSettings
    models: RuntimeLifecycle
    inference: TritonInference
    answering: Answering

    async def ping(self, _request: Request) -> web.Response:
        """Whether models can be loaded and asked."""
        obstacle = await obstacle_of(self.models, self.inference)
        if obstacle is None:
            return json_answer({"status": "Healthy"})
        return json_answer({"status": "Unhealthy", "error": obstacle}, UNAVAILABLE)

    async def load(self, request: Request) -> web.Response:
        """POST /models. A client that leaves has its load undone."""
        load = await request.read_by(structured, Load)
        model = Named(load.model_name, load.url)
        model_id = model_id_of(model.name)
        note(model_id=model_id, url=model.url)
        spec = ModelSpec(model_id=model_id, model_type="", path=model.url, named=model, folders=self._roots_of(model.url))
        try:
            loaded = await self.models.load_new(spec)
        except ModelRefused as refused:
            if is_out_of_memory(refused.text, (model.name, model_id), is_load=True):
                raise NoCapacity(refused.text) from refused
            raise
        note(size_bytes=loaded.size_bytes)
        return json_answer({"status": f'Model "{model.name}" registered'})

    async def list(self, request: Request) -> web.Response:
        """GET /models: what serves, sorted by name; never waits."""
        serving = [model for model in self.models.known() if model.is_serving]
        found, token = page(serving, request.query.get("limit"), request.query.get("next_page_token"))
        value: dict[str, Any] = {"models": [_shown(model) for model in found]}
        return json_answer(value if token is None else {**value, "nextPageToken": token})

    async def get(self, request: Request) -> web.Response:
        """GET /models/{name}."""
        model = self._known(request)
        if not model.is_serving:
            raise ModelNotLoaded(f"{NOT_FOUND}{model.name}")
        return json_answer(_shown(model))

    async def unload(self, request: Request) -> web.Response:
        """DELETE /models/{name}: answers when memory and folder are free. What has begun goes on when the client leaves."""
        model = self._known(request)
        note(model_id=model.model_id)
        await self.models.unload(model.model_id)
        return json_answer({"status": f'Model "{model.name}" unregistered'})

    def _known(self, request: Request) -> KnownModel:
        """The model that the path names, whatever is under way for it. Raises as `_name`; ModelNotLoaded."""
        name = _name(request)
        model = self.models.find(name)
        if model is None:
            raise ModelNotLoaded(f"{NOT_FOUND}{name}")
        return model

    def _roots_of(self, url: str) -> tuple[Path, ...]:
        """All roots, the one first that the url seems to lie in; where it does is found out with all links followed."""
        path = Path(os.path.normpath(f"/{url.lstrip('/')}"))
        return tuple(sorted(self.settings.model_roots, key=lambda root: root not in path.parents))

    async def invoke(self, request: Request) -> web.StreamResponse:
        """POST /models/{name}/invoke."""
        return await self._answered(request, _name(request))

    async def invocations(self, request: Request) -> web.StreamResponse:
        """POST /invocations: the model that Target-Model names, or the only one."""
        target = target_of(request)
        names = [model.name for model in self.models.known() if model.is_serving] if target is None else [target]
        if len(names) != 1:
            raise HttpError(400, f"{TARGET} must name the model: {len(names)} models are loaded")
        return await self._answered(request, names[0])

    async def _answered(self, request: Request, name: str) -> web.StreamResponse:
        model = serving(self.models.find(name), name)
        note(model=name, model_id=model.model_id)
        if (target := target_of(request)) is not None:
            note(target=target)
        content_type = request.headers.get("Content-Type", "")
        is_binary = _BINARY.fullmatch(content_type.strip())
        try:
            if is_binary is None and _is_json(content_type):
                return await self._of_json(request, model)
            head = head_of(is_binary[1] if is_binary else "0")
            return _written(*await inferred(self.inference, model, request, head))
        except InferenceFailed as failed:
            raise self._told(failed, model, request) from failed

    async def _of_json(self, request: Request, model: KnownModel) -> web.StreamResponse:
        info = await self.inference.model_info(model)
        language = await self.answering.opened(model, request.front)
        schema, found = await request.read_by(meant, self.settings.schema, info, language)
        serving(self.models.find(model.name), model.name)  # a DELETE may have come before the end of the body
        if isinstance(found, Lmi):
            return await self.answering.answer(request, model, found)
        if schema == "infer":
            return _written(*await answer_to(self.inference, model, found))
        if schema == "generate":
            return await whole(self.inference, model, found)
        return await streamed(self.inference, model, found, request)

    def _told(self, failed: InferenceFailed, model: KnownModel, request: Request) -> Exception:
        if failed.failure is Failure.NOT_FOUND:
            return ModelNotLoaded(f"{NOT_FOUND}{model.name}")
        is_theirs = failed.failure in _THEIR_FAULT  # such a text quotes the caller, who may have named a tensor so
        if not is_theirs and is_out_of_memory(failed.text, (model.name, model.model_id), is_load=False, said=request.said):
            return NoCapacity(failed.text)
        return HttpError(400, failed.text) if is_theirs else failed


def _name(request: Request) -> str:
    """The name in the path. Raises InvalidRequest, HttpError: no model can have it."""
    return Named(request.name, "-").name


def _shown(model: KnownModel) -> Mapping[str, str]:
    return {"modelName": model.name, "modelUrl": model.url}


def _fails(_request: Request, status: int, text: str) -> web.Response:
    kind = _TYPES.get(status) or HTTPStatus(status).phrase.title().replace(" ", "")
    return json_answer({"error": text, "code": status, "type": f"{kind}Exception", "message": text}, status)


def _written(body: bytes, length: int | None) -> web.Response:
    return bytes_answer(body, JSON if length is None else f"{BINARY};json-header-size={length}")


def _is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind in ("", JSON, "text/json") or kind.endswith("+json")


def page(models: Sequence[KnownModel], limit: str | None, token: str | None) -> tuple[Sequence[KnownModel], str | None]:
    """
    One page of models that are sorted by name, and the token of the next one; None where this was the last.

    A token is the last name of its page, so a page is right however the list has changed since.

    Raises:
        HttpError: 400: a limit that is none.
    """
    most = MOST if limit is None else int(limit) if limit.isascii() and limit.isdigit() and len(limit) <= len(str(MOST)) else 0
    if not 1 <= most <= MOST:
        raise HttpError(400, f"limit must be a number from 1 to {MOST}")
    start = bisect_right([model.name for model in models], token or "")
    found = models[start : start + most]
    return found, found[-1].name if start + most < len(models) else None


def model_id_of(name: str) -> str:
    """
    The name itself; of one that Triton could not have (it is too long, or reserved), or not serve, its digest.

    Triton's python backend starts its process by a shell, with the model's folder unquoted: a space never comes to an end.
    Source: observed on Triton 2.51; `python_backend/src/stub_launcher.cc`.
    """
    is_plain = _PLAIN.fullmatch(name) is not None and id_problem(name) is None
    return name if is_plain else f"sm-{hashlib.sha256(name.encode()).hexdigest()}"
