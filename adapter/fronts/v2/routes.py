"""
The V2 inference protocol over HTTP, in front of Triton, or of ModelMesh, and the model repository API: index, load, unload.

What fails before a model has been asked is an ordinary error. The status of a stream is that of its first answer; an error that comes later
is an event of its own. What a client that leaves, or does not read, has asked for is cancelled in Triton.

Errors are `{"error": text}` and nothing else. The repository is shut unless V2_REPOSITORY_API opens it, and each call then says so.
Source: the V2 predict protocol, and Triton's extensions of it, as `docs/protocol/extension_model_repository.md`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Any

import orjson
from aiohttp import web

from adapter.fronts.answers import BINARY, JSON, Stream, bytes_answer, compressed, event, json_answer
from adapter.fronts.bodies import FREE_BYTES, off_loop_if_large
from adapter.fronts.edge import REPOSITORY, Front, Request, Route
from adapter.fronts.failures import UNAVAILABLE, HttpError, structured
from adapter.fronts.tensors import as_json
from adapter.fronts.v2.requests import Asked, Index, Unload, flat_meant, head_of, meant, overrides_of
from adapter.inference import Failure, InferenceFailed, is_final, parameters_of
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.lifecycle.repository_calls import RepositoryCalls
from adapter.model import ServerModel
from adapter.serving import KnownModel, serving
from adapter.telemetry.logs import note
from adapter.triton.inference.client import TritonInference
from adapter.triton.inference.messages import json_of

SERVED = ("classification", "sequence", "model_configuration", "binary_tensor_data", "parameters", "statistics")
"""Extensions of Triton that this front serves. Source: names in Triton's ServerMetadata."""
EXTENSIONS = ("model_repository", "model_repository(unload_dependents)")
CLASSIFICATION = "classification"
"""Parameter of an output. Source: Triton's classification extension."""
EVENTS = "text/event-stream; charset=utf-8"
Written = tuple[bytes, int | None]
"""A body, and its bytes of JSON before the binary data; None: there is none."""
RESTORE_SECONDS = 60.0
"""So long the front is not ready because of models that are being loaded again."""
PLACES = ("/v2/models/{name}", "/v2/models/{name}/versions/{version}")
HEADER_LENGTH = "Inference-Header-Content-Length"
_VERSION = re.compile(r"[0-9]{1,18}")


def front(
    inference: TritonInference, triton: TritonInference, models: RuntimeLifecycle | None = None, api: RepositoryCalls | None = None
) -> Front:
    """
    The front of V2 REST.

    Args:
        inference: the server behind it.
        triton: the pod's own, which says whether the pod is well: ModelMesh has no such call.
        models: the adapter's, where `inference` is the pod's own Triton.
        api: of the model repository; None: its calls are refused.
    """
    handlers = _Handlers(inference, triton, models, api)
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
    models: RuntimeLifecycle | None
    api: RepositoryCalls | None
    restoring_since: float | None = None
    """When a question for readiness first found that models were being loaded again."""

    async def live(self, request: Request) -> web.Response:
        return _health(request, "live", is_well=await self.triton.is_live())

    async def ready(self, request: Request) -> web.Response:
        is_here = self.models is None or (self.models.obstacle is None and not self._is_restoring(self.models))
        is_well = is_here and await self.triton.is_ready()
        return _health(request, "ready", is_well=is_well and (self.inference is self.triton or await self.inference.is_live()))

    def _is_restoring(self, models: RuntimeLifecycle) -> bool:
        """Whether models are being loaded again; some may never come back."""
        if not any(model.is_coming_back for model in models.known()):
            self.restoring_since = None
            return False
        self.restoring_since = self.restoring_since or monotonic()
        return monotonic() - self.restoring_since < RESTORE_SECONDS

    async def server(self, _request: Request) -> web.Response:
        info = await self.triton.server_info()
        served = SERVED if self.api is None else (*SERVED, *EXTENSIONS)
        extensions = [name for name in info.extensions if name in served]
        return json_answer({"name": info.name, "version": info.version, "extensions": extensions})

    async def model_ready(self, request: Request) -> web.Response:
        model = self._model(request)
        if not await self.inference.is_model_ready(model.model_id, model.version):
            raise HttpError(400, f"the model {model.name!r} is not ready")
        return _health(request, "ready", is_well=True)

    async def told(self, request: Request, *, question: Callable[[TritonInference, str, str], Awaitable[Any]]) -> web.Response:
        model = self._model(request)
        return json_answer(json_of(await question(self.inference, model.model_id, model.version)))

    async def all_statistics(self, _request: Request) -> web.Response:
        return json_answer(json_of(await self.inference.model_statistics()))

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
        return compressed(await whole(self.inference, model, await request.read_by(flat_meant, info, model.version)))

    async def generate_stream(self, request: Request) -> web.StreamResponse:
        model = self._model(request)
        asked = await request.read_by(flat_meant, await self.inference.model_info(model), model.version)
        return await streamed(self.inference, model, asked, request, begins_with_failure=True)

    def _model(self, request: Request) -> KnownModel:
        """The model that a path names. Raises HttpError 400; ServerUnavailable: it is being loaded again."""
        name, version = request.name, request.parts.get("version", "")
        if version and not _VERSION.fullmatch(version):
            raise HttpError(400, "the version in the path must be a number")
        model = None if self.models is None else self.models.find(name) or self.models.find_id(name)
        if model is not None and model.is_coming_back:
            serving(model, name)  # raises: it is being loaded again
        return replace(model or KnownModel(name, name), name=name, version=version)

    async def index(self, request: Request) -> web.Response:
        """POST /v2/repository/index."""
        api, asked = self._opened(), await request.read_by(structured, Index)
        return json_answer([_row(row) for row in await api.index() if row.state == "READY" or not asked.ready])

    async def load(self, request: Request) -> web.Response:
        """POST /v2/repository/models/{name}/load."""
        api, name = self._opened(), request.name
        await api.load(name, await request.read_by(overrides_of))
        return web.Response()

    async def unload(self, request: Request) -> web.Response:
        """POST /v2/repository/models/{name}/unload."""
        api, name = self._opened(), request.name
        asked = await request.read_by(structured, Unload)
        await api.unload(name, has_dependents=asked.parameters.get("unload_dependents", False))
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


def _row(row: ServerModel) -> Mapping[str, str]:
    """Without what Triton does not tell."""
    return {key: value for key, value in row._asdict().items() if value or key == "name"}


# ---- answers, for other fronts, too, that carry V2 in paths of their own


async def inferred(inference: TritonInference, model: KnownModel, request: Request, head: int | None) -> Written:
    """
    The whole of it.

    Args:
        inference: the server.
        model: which one.
        request: its body is not read yet.
        head: as `head_of`.

    Raises:
        HttpError: 400: the body is no request; and as `Request.read_by`.
        InferenceFailed: as `TritonInference.one`.
    """
    info = await inference.model_info(model) if head == 0 else None
    return await answer_to(inference, model, await request.read_by(meant, model.model_id, model.version, head, info, head=head))


async def answer_to(inference: TritonInference, model: KnownModel, asking: Asked) -> Written:
    """The answer in the form that was asked for. Raises as `inferred`."""
    await _check_classes(inference, model, asking.head)
    response = await inference.one(asking.head, asking.wire)
    contents = list(response.raw_output_contents)  # each look at them copies
    return await off_loop_if_large(sum(map(len, contents)), lambda: _written(response, contents, model, asking))


async def _check_classes(inference: TritonInference, model: KnownModel, request: Any) -> None:
    """Triton 2.51 dies of classes that are wanted of texts. Raises HttpError 400."""
    names = {output.name for output in request.outputs if CLASSIFICATION in output.parameters}
    if names:
        for output in (await inference.model_info(model)).metadata.outputs:
            if output.name in names and output.datatype == "BYTES":
                raise HttpError(400, f"output {output.name!r} has texts, which have no classification")


def _written(response: Any, contents: Sequence[bytes], model: KnownModel, asked: Asked) -> Written:
    """
    The answer in the form that was asked for.

    Raises:
        HttpError: as `tensors.as_json`.
    """
    binary: list[bytes] = []
    outputs = []
    for output, data in zip(response.outputs, contents, strict=True):
        entry: dict[str, Any] = {"name": output.name, "datatype": output.datatype, "shape": list(output.shape)}
        parameters = parameters_of(output)
        if asked.is_binary(output.name):
            binary.append(data)
            parameters["binary_data_size"] = len(data)
        else:
            text = as_json(f"output {output.name!r}", output.datatype, data, is_base64=output.name in asked.base64)
            entry["data"] = orjson.Fragment(text)
        outputs.append(entry | ({"parameters": parameters} if parameters else {}))
    value: dict[str, Any] = {"id": response.id} if response.id else {}
    value |= {"model_name": model.name, "model_version": response.model_version}
    if parameters := parameters_of(response):
        value["parameters"] = parameters
    text = orjson.dumps({**value, "outputs": outputs})
    if not binary:
        return text, None
    return b"".join((text, *binary)), len(text)


# ---- flat JSON


async def whole(inference: TritonInference, model: KnownModel, asking: Asked) -> web.Response:
    """The model's only answer. Raises InferenceFailed, as `TritonInference.one`."""
    response = await inference.one(asking.head, asking.wire)
    size_bytes = sum(map(len, response.raw_output_contents))
    return bytes_answer(await off_loop_if_large(size_bytes, lambda: flat_written(response, model.name)), JSON)


async def streamed(
    inference: TritonInference, model: KnownModel, asking: Asked, request: Request, *, begins_with_failure: bool = False
) -> web.StreamResponse:
    """
    All answers, as events. A failure after the first one is an event.

    With `begins_with_failure` so is a failure of the model itself instead of its first answer, with the failure's status: as Triton has it.

    Raises:
        InferenceFailed: before the first answer, or instead of it.
    """
    stream = Stream(request, EVENTS)
    async with aclosing(inference.stream(asking.request)) as answers:
        try:
            async for response in answers:
                is_end = is_final(response) and not response.outputs  # it only says that the stream has ended
                await stream.write(b"" if is_end else b"data: %s\n\n" % flat_written(response, model.name))
        except (InferenceFailed, HttpError) as failed:
            if not stream.response.prepared:
                if not (begins_with_failure and isinstance(failed, InferenceFailed) and failed.failure is Failure.INTERNAL):
                    raise
                stream.response.set_status(failed.failure.value)
            note(error=failed.text)
            await stream.write(event({"error": failed.text}))
    return stream.response


def flat_written(response: Any, model: str) -> bytes:
    """
    An answer of this model as one line of JSON. Names of outputs give way to those of the protocol.

    Raises:
        HttpError: as `tensors.as_json`.
    """
    found: dict[str, Any] = {}
    for output, data in zip(response.outputs, response.raw_output_contents, strict=True):
        text = as_json(f"output {output.name!r}", output.datatype, data)
        found[output.name] = orjson.Fragment(text[1:-1] if math.prod(output.shape) == 1 else text)
    found |= parameters_of(response)
    found |= {"model_name": model, "model_version": response.model_version}
    if response.id:
        found["id"] = response.id
    return orjson.dumps(found, option=orjson.OPT_SORT_KEYS)
