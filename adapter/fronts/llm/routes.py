"""
LMI's, TGI's and OpenAI's paths, and the answer to one of their bodies, which other fronts carry, too. Source: DJL Serving's
`/invocations` and `/predictions/{model}`; TGI's `/`, `/generate`, `/generate_stream`, `/info`; OpenAI's API reference.

A path that names no model is for LMI_MODEL, or for the only model that serves.

A failure before the first token is a status; a later one is the last line of the stream. How one model's answers look, say the settings,
and `option.*` of its own `serving.properties`, which beat them; the file's other lines are for DJL Serving's engines. An option is a line
`name=value`, or `name: value`.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import orjson
from aiohttp import web

from adapter.errors import AdapterError, InvalidModel, InvalidRequest, ModelNotLoaded, ServerUnavailable
from adapter.fronts.answers import Stream, event, json_answer
from adapter.fronts.edge import Front, Request, Route
from adapter.fronts.failures import NO_SPACE, UNAVAILABLE, HttpError
from adapter.fronts.llm.backends import profile_of
from adapter.fronts.llm.chats import Chats, FileOf
from adapter.fronts.llm.generating import ends_of, steps, totals
from adapter.fronts.llm.openai import OpenAi, error_body, meant
from adapter.fronts.llm.parameters import MOST_ENTRIES
from adapter.fronts.llm.schemas import JSON_LINES, SSE, Dynamic, Lmi, Tgi, tgi_body
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import OPTIONS_FILE, is_utf8
from adapter.serving import NOT_FOUND, KnownModel, serving
from adapter.settings.fronts import LlmSettings
from adapter.telemetry.logs import note
from adapter.triton.inference.client import TritonInference

TARGET = "X-Amzn-SageMaker-Target-Model"
_INFO: Mapping[str, Any] = {
    **dict.fromkeys(("model_id", "model_sha", "model_dtype", "model_device_type")), "model_pipeline_tag": "text-generation",
    "max_best_of": 1, "max_stop_sequences": MOST_ENTRIES, "max_client_batch_size": 1, "router": "modelmesh-triton-adapter",
}  # fmt: skip
_TGI_PATHS = frozenset({"/", "/generate", "/generate_stream", "/info", "/health"})


def front(settings: LlmSettings, models: RuntimeLifecycle, inference: TritonInference, answering: Answering) -> Front:
    """The front of language models; `answering` is the one that any other front has."""
    handlers = _Handlers(settings.model, models, inference, answering)
    routes = [
        Route("GET", "/health", handlers.health, "health"),
        Route("GET", "/ping", handlers.health, "health"),
        Route("GET", "/info", handlers.info, "metadata"),
        Route("POST", "/predictions/{name}", handlers.generate, "inference"),
        Route("POST", "/invocations", handlers.generate, "inference"),
        Route("POST", "/", partial(handlers.generate, schema=Tgi), "inference"),
        Route("POST", "/generate", partial(handlers.generate, schema=partial(Tgi, is_list=False, is_stream=False)), "inference"),
        Route("POST", "/generate_stream", partial(handlers.generate, schema=partial(Tgi, is_stream=True)), "inference"),
        Route("POST", "/v1/completions", partial(handlers.openai, is_chat=False), "inference"),
        Route("POST", "/v1/chat/completions", partial(handlers.openai, is_chat=True), "inference"),
        Route("GET", "/v1/models", handlers.listing, "metadata"),
        Route("GET", "/v1/models/{name}", handlers.listed, "metadata"),
    ]
    return Front(name="lmi", routes=routes, fails=_fails)


async def obstacle_of(models: RuntimeLifecycle, inference: TritonInference) -> str | None:
    """Why no model can be asked now, in words; None: Triton answers, and its models are known. Within a second."""
    if models.obstacle is None and not await inference.is_live():
        return "Triton does not answer"
    return models.obstacle


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
    models: RuntimeLifecycle
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
        """TGI's names; null is what is not known here. `backend` and `token_details` are our own."""
        model = await self._serving()
        info = await self.inference.model_info(model)
        profile = profile_of(info)
        known = {"model_id": model.name, "backend": profile.name, "token_details": profile.level(info)}
        return json_answer({**_INFO, **known})

    async def listing(self, _request: Request) -> web.Response:
        """GET /v1/models."""
        data = [_model(model.name) for model in self.models.known() if model.is_serving]
        return json_answer({"object": "list", "data": data})

    async def listed(self, request: Request) -> web.Response:
        """GET /v1/models/{name}."""
        return json_answer(_model((await self._serving(request.name)).name))

    async def openai(self, request: Request, *, is_chat: bool) -> web.StreamResponse:
        """One of OpenAI's paths; the body names the model."""
        said = await request.read_by(meant, OpenAi(is_chat=is_chat))
        if not said.model or "\0" in said.model:  # at which Triton would cut it
            return json_answer(error_body(400, "model: must be the name of a model", "model"), 400)
        return await self.answering.answer(request, await self._serving(said.model), said)

    async def generate(self, request: Request, *, schema: Callable[[], Lmi] | None = None) -> web.StreamResponse:
        """A path of LMI's or TGI's. None: the body, or the model's options, say the schema; the path or the header may name the model."""
        name = request.name if "name" in request.parts else target_of(request) if schema is None else None
        model = await self._serving(name)
        return await self.answering.answer(request, model, schema() if schema else await self.answering.opened(model, request.front))

    async def _serving(self, name: str | None = None) -> KnownModel:
        """None: LMI_MODEL, or the only one that serves."""
        name = self.named if name is None else name
        if name is None:
            found = [model for model in self.models.known() if model.is_serving]
            if len(found) != 1:
                raise ModelNotLoaded(f"the path names no model, LMI_MODEL is not set, and {len(found)} models are loaded")
            return found[0]
        model = await self._find(name)
        if model is not None and model.is_coming:
            raise ServerUnavailable(f"the model {name!r} is being loaded")
        return serving(model, name)

    async def _find(self, name: str) -> KnownModel | None:
        """Also one that others have loaded into this Triton: it has no options of its own."""
        model = self.models.find(name)
        if model is None and await self.inference.is_model_ready(name):
            return KnownModel(name, name)
        return model


def _model(name: str) -> dict[str, object]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "modelmesh-triton-adapter"}


# ---- one request


MOST_BYTES = 64 * 1024
_OPTIONS = {entry.metadata["env"].lower().replace("_", ".", 1): entry for entry in fields(LlmSettings)}
"""Field of the settings, by the name that DJL Serving has for it: `option.rolling_batch`."""
_line = partial(orjson.dumps, option=orjson.OPT_APPEND_NEWLINE)
_FORMS = {"jsonlines": JSON_LINES, "sse": SSE}
"""Content type of `option.output_formatter`."""


def options_of(settings: LlmSettings, properties: bytes | None) -> LlmSettings:
    """
    The settings of a model that has this file, or none.

    Raises:
        InvalidModel: an option has a value that it cannot have.
    """
    changes: dict[str, Any] = {}
    for line in (properties or b"").decode("utf-8", "replace").splitlines():
        name, value, *_ = *re.split(r"\s*[=:]\s*", line.strip(), maxsplit=1), ""
        if name.startswith("option.") and (entry := _OPTIONS.get(name)):
            try:
                changes[entry.name] = entry.metadata["kind"].parse(value[:64])
            except ValueError as error:
                raise InvalidModel(f"{OPTIONS_FILE}: {name}: {error}") from None
    return replace(settings, **changes)


class Answering:
    """Answers the bodies of language models. Call `close` at the end."""

    def __init__(self, settings: LlmSettings, inference: TritonInference, file_of: FileOf) -> None:
        self._settings = settings
        self._inference = inference
        self._file_of = file_of
        self._chats = Chats(file_of)
        self.close = self._chats.close

    async def opened(self, model: KnownModel, front: str) -> Lmi:
        """The schema of a body whose form, or the model's options, say it."""
        try:
            own = options_of(self._settings, await self._file_of(model, OPTIONS_FILE, MOST_BYTES))
        except InvalidModel as problem:
            return Lmi(wishes=problem)
        kind = Dynamic if own.rolling_batch == "disable" else Tgi if own.is_tgi_compatible else Lmi
        schema = kind(is_open=True, streams=own.is_streaming)
        if front == "sagemaker":
            schema.full = NO_SPACE
        if own.output_formatter in _FORMS:
            schema.content_type, schema.streams = _FORMS[own.output_formatter], True
        return schema

    async def answer(self, request: Request, model: KnownModel, schema: Lmi) -> web.StreamResponse:
        """The answer for a model that serves, to a body that is read or not; also where it is wrong, or fails."""
        stream: Stream | None = None
        try:
            if schema.wishes is None:
                schema = await request.read_by(meant, schema)
            if isinstance(schema.wishes, Exception):
                raise schema.wishes
            schema.model, wishes = model.name, schema.wishes
            if wishes.messages:
                prompt = await self._chats.prompt(model, wishes.messages)
                wishes = schema.wishes = replace(wishes, prompts=[prompt] * wishes.choices)
            if wishes.ignored:
                note(ignored_parameters=list(wishes.ignored))
            info = await self._inference.model_info(model)
            if not wishes.is_stream:
                ends = await ends_of(self._inference, info, wishes)
                told = zip(("x-prompt-tokens", "x-generated-tokens"), totals(ends), strict=True)
                headers = {name: str(count) for name, count in told if count is not None}
                headers["x-total-time"] = str(round((time.monotonic() - request.started) * 1000))
                return json_answer(schema.answer(ends), headers=headers)
            stream, framed = Stream(request, schema.content_type), event if schema.content_type == SSE else _line
            async with aclosing(steps(self._inference, info, wishes)) as found:
                async for step in found:
                    for value in schema.values(step):
                        await stream.write(framed(value))
        except (HttpError, AdapterError) as error:
            status = schema.status(error, (model.name, model.model_id), request.said)
            note(reason=getattr(error, "reason", "payload"), error=error.text)
            if stream is None or not stream.response.prepared:
                return json_answer(schema.failed(status, error), status, getattr(error, "headers", None))
            await stream.write(framed(schema.broken(status, error)))
        if schema.end:
            await stream.write(schema.end)
        return stream.response
