"""
LMI's, TGI's and OpenAI's paths. Source: DJL Serving's `/invocations` and `/predictions/{model}`; TGI's `/`, `/generate`,
`/generate_stream`, `/info`; OpenAI's API reference.

A path that names no model is for LMI_MODEL, or for the only model that serves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from adapter.errors import InvalidRequest, ModelNotLoaded, ServerUnavailable
from adapter.fronts.answers import UNAVAILABLE, json_answer
from adapter.fronts.asking import NOT_FOUND, info_of, obstacle_of, place_of, serving
from adapter.fronts.bodies import parsed
from adapter.fronts.edge import Front, Request, Route
from adapter.fronts.llm.answering import Answering
from adapter.fronts.llm.backends import profile_of
from adapter.fronts.llm.openai import OpenAi, error_body
from adapter.fronts.llm.parameters import MOST_ENTRIES, is_text
from adapter.fronts.llm.schemas import Lmi, Tgi, tgi_body
from adapter.inference import Failure, InferenceFailed
from adapter.model import is_utf8
from adapter.serving import KnownModel, Models
from adapter.settings.fronts import LlmSettings
from adapter.triton.inference.client import TritonInference

TARGET = "X-Amzn-SageMaker-Target-Model"
_INFO: Mapping[str, Any] = {
    **dict.fromkeys(("model_id", "model_sha", "model_dtype", "model_device_type")), "model_pipeline_tag": "text-generation",
    "max_best_of": 1, "max_stop_sequences": MOST_ENTRIES, "max_client_batch_size": 1, "router": "modelmesh-triton-adapter",
}  # fmt: skip
_TGI_PATHS = frozenset({"/", "/generate", "/generate_stream", "/info", "/health"})


def front(settings: LlmSettings, models: Models, inference: TritonInference, answering: Answering) -> Front:
    """The front of language models; `answering` is the one that any other front has."""
    handlers = _Handlers(settings.model, models, inference, answering)
    routes = [
        Route("GET", "/health", handlers.health, "health"),
        Route("GET", "/ping", handlers.health, "health"),
        Route("GET", "/info", handlers.info, "metadata"),
        Route("POST", "/predictions/{name}", handlers.prediction, "inference"),
        Route("POST", "/invocations", partial(handlers.default, schema=None), "inference"),
        Route("POST", "/", partial(handlers.default, schema=Tgi()), "inference"),
        Route("POST", "/generate", partial(handlers.default, schema=Tgi(is_list=False, is_stream=False)), "inference"),
        Route("POST", "/generate_stream", partial(handlers.default, schema=Tgi(is_stream=True)), "inference"),
        Route("POST", "/v1/completions", partial(handlers.openai, is_chat=False), "inference"),
        Route("POST", "/v1/chat/completions", partial(handlers.openai, is_chat=True), "inference"),
        Route("GET", "/v1/models", handlers.listing, "metadata"),
        Route("GET", "/v1/models/{name}", handlers.listed, "metadata"),
    ]
    return Front(name="lmi", routes=routes, fails=_fails)


def target_of(request: Request) -> str | None:
    """The model that Target-Model names; None: the header is not there. Raises InvalidRequest: it is no UTF-8."""
    target = request.headers.get(TARGET)
    if target is not None and not is_utf8(target):
        raise InvalidRequest(f"{TARGET} is no UTF-8")
    return target


def _fails(request: Request, status: int, text: str) -> web.Response:
    if request.path.startswith("/v1/"):
        about = ("model", "model_not_found") if text.startswith(NOT_FOUND) else ()
        return json_answer(error_body(status, text, *about), status)
    return json_answer(tgi_body(status, text) if request.path in _TGI_PATHS else {"error": text, "code": status}, status)


@dataclass(frozen=True)
class _Handlers:
    named: str | None
    """LMI_MODEL."""
    models: Models
    inference: TritonInference
    answering: Answering

    async def health(self, _request: Request) -> web.Response:
        obstacle = await obstacle_of(self.models, self.inference)
        if obstacle is None and self.named is not None:
            model = await self._find(self.named)
            obstacle = None if model is not None and model.is_serving else f"the model {self.named!r} does not serve"
        if obstacle is None:
            return web.Response(status=200)
        return json_answer({"error": obstacle, "error_type": "healthcheck"}, UNAVAILABLE)

    async def info(self, _request: Request) -> web.Response:
        """TGI's names; null is what nobody knows here. `backend` and `token_details` are our own."""
        model = await self._default_model()
        info = await info_of(self.inference, place_of(model))
        profile = profile_of(info)
        known = {"model_id": model.name, "backend": profile.name, "token_details": profile.level(info)}
        return json_answer({**_INFO, **known})

    async def prediction(self, request: Request) -> web.StreamResponse:
        """POST /predictions/{name}."""
        return await self.answering.answer(request, await self._serving(request.name))

    async def listing(self, _request: Request) -> web.Response:
        """GET /v1/models."""
        data = [_model(model.name) for model in self.models.known() if model.is_serving]
        return json_answer({"object": "list", "data": data})

    async def listed(self, request: Request) -> web.Response:
        """GET /v1/models/{name}."""
        return json_answer(_model((await self._serving(request.name)).name))

    async def openai(self, request: Request, *, is_chat: bool) -> web.StreamResponse:
        """One of OpenAI's paths; the body names the model."""
        value = await request.read_by(parsed)
        name = value.get("model") if isinstance(value, dict) else None
        if not is_text(name) or not name or "\0" in name:  # at which Triton would cut it
            return json_answer(error_body(400, "model: must be the name of a model", "model"), 400)
        return await self.answering.answer(request, await self._serving(name), OpenAi(is_chat=is_chat), value)

    async def default(self, request: Request, *, schema: Lmi | None) -> web.StreamResponse:
        """A path that names no model; None: the body, or the model's options, say the schema."""
        target = target_of(request) if schema is None else None
        model = await (self._default_model() if target is None else self._serving(target))
        return await self.answering.answer(request, model, schema)

    async def _default_model(self) -> KnownModel:
        if self.named is not None:
            return await self._serving(self.named)
        serving = [model for model in self.models.known() if model.is_serving]
        if len(serving) != 1:
            raise ModelNotLoaded(f"the path names no model, LMI_MODEL is not set, and {len(serving)} models are loaded")
        return serving[0]

    async def _serving(self, name: str) -> KnownModel:
        model = await self._find(name)
        if model is not None and model.is_coming:
            raise ServerUnavailable(f"the model {name!r} is being loaded")
        return serving(model, name)

    async def _find(self, name: str) -> KnownModel | None:
        """Also one that others have loaded into this Triton: it has no options of its own."""
        if (model := self.models.find(name)) is not None:
            return model
        try:
            is_of_others = await self.inference.is_model_ready(name)
        except InferenceFailed as failed:
            if failed.failure not in (Failure.NOT_FOUND, Failure.INVALID):
                raise
            is_of_others = False
        return KnownModel(name, name, "", is_serving=True, is_coming_back=False, is_going=False) if is_of_others else None


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "modelmesh-triton-adapter"}
