"""
The models of the multi-model contract: load, list, get, unload.

Source: "Custom Containers Contract for Multi-Model Endpoints"; of `limit`: multi-model-server.
"""

from __future__ import annotations

import base64
import hashlib
import os.path
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from aiohttp import web

from adapter.errors import InvalidRequest, ModelNotLoaded, ModelRefused, NoCapacity
from adapter.fronts.answers import HttpError, json_answer
from adapter.fronts.bodies import json_of
from adapter.fronts.edge import name_in
from adapter.fronts.memory import is_out_of_memory
from adapter.model import ModelSpec, Named, id_problem
from adapter.serving import KnownModel, Models
from adapter.settings.fronts import SageMakerSettings
from adapter.telemetry.logs import note

MOST = 100
"""Of a page."""
_VERSION = b"1"
_PLAIN = re.compile(r"[0-9A-Za-z._~-]{1,200}")


class Table:
    """Handlers of `/models`."""

    def __init__(self, settings: SageMakerSettings, models: Models) -> None:
        self._models = models
        self._roots = settings.model_roots
        self._answers_as = settings.answers_as

    async def load(self, request: web.Request) -> web.Response:
        """POST /models. A client that leaves has its load undone."""
        model = _named_in(await json_of(request))
        model_id = model_id_of(model.name)
        note(model_id=model_id, url=model.url)
        spec = ModelSpec(model_id=model_id, model_type="", path=model.url, named=model, folders=self._roots_of(model.url))
        try:
            loaded = await self._models.load_new(spec)
        except ModelRefused as refused:
            if is_out_of_memory(refused.text, (model.name, model_id), is_load=True):
                raise NoCapacity(refused.text) from refused
            raise
        note(size_bytes=loaded.size_bytes)
        status = "Workers scaled" if self._answers_as == "mms" else f'Model "{model.name}" registered'
        return json_answer({"status": status})

    async def list(self, request: web.Request) -> web.Response:
        """GET /models: what serves, sorted by name; never waits."""
        serving = [model for model in self._models.known() if model.is_serving]
        found, token = page(serving, request.query.get("limit"), request.query.get("next_page_token"))
        value: dict[str, Any] = {"models": [self._shown(model) for model in found]}
        return json_answer(value if token is None else {**value, "nextPageToken": token})

    async def get(self, request: web.Request) -> web.Response:
        """GET /models/{name}."""
        name = checked_name(request)
        model = self._models.find(name)
        if model is None or not model.is_serving:
            raise not_found(name)
        return json_answer(self._shown(model))

    async def unload(self, request: web.Request) -> web.Response:
        """DELETE /models/{name}: answers when memory and folder are free. What has begun goes on when the client leaves."""
        name = checked_name(request)
        model = self._models.find(name)
        if model is None:
            raise not_found(name)
        note(model_id=model.model_id)
        await self._models.unload(model.model_id)
        return json_answer({"status": f'Model "{name}" unregistered'})

    def _shown(self, model: KnownModel) -> Mapping[str, str]:
        url = str(Path(model.url).parent) if self._answers_as == "triton" else model.url
        return {"modelName": model.name, "modelUrl": url}

    def _roots_of(self, url: str) -> tuple[Path, ...]:
        """All roots, the one first that the url seems to lie in; where it does is found out with all links followed."""
        if "\0" in url or not os.path.isabs(url):  # noqa: PTH117 - a text, which no Path has to be
            raise InvalidRequest(f"url {url[:256]!r} is not an absolute path")
        path = Path(os.path.normpath(f"/{url.lstrip('/')}"))
        return tuple(sorted(self._roots, key=lambda root: root not in path.parents))


def page(models: Sequence[KnownModel], limit: str | None, token: str | None) -> tuple[Sequence[KnownModel], str | None]:
    """
    One page of models that are sorted by name, and the token of the next one; None where this was the last.

    A token holds the last name of its page, so a page is right however the list has changed since.

    Raises:
        HttpError: 400: a limit or a token that is none.
    """
    most = _limit(limit)
    start = 0 if token is None else bisect_right([model.name for model in models], _last_name(token))
    found = models[start : start + most]
    return found, _token(found[-1].name) if start + most < len(models) else None


def _limit(text: str | None) -> int:
    if text is None:
        return MOST
    if not (text.isascii() and text.isdigit() and len(text) <= len(str(MOST)) and 1 <= int(text) <= MOST):
        raise HttpError(400, f"limit must be a number from 1 to {MOST}")
    return int(text)


def _token(name: str) -> str:
    return base64.urlsafe_b64encode(_VERSION + name.encode()).decode().rstrip("=")


def _last_name(token: str) -> str:
    try:
        content = base64.urlsafe_b64decode(token + "==")
        name = content.removeprefix(_VERSION).decode()
    except ValueError:
        content, name = b"", ""
    if not content.startswith(_VERSION):
        raise HttpError(400, "next_page_token is not one that this server has given")
    return name


def model_id_of(name: str) -> str:
    """
    The name itself; of one that Triton could not have (it is too long, or reserved), or not serve, its digest.

    Triton's python backend starts its process by a shell, with the model's folder unquoted: a space never comes to an end.
    Source: observed on Triton 2.51; `python_backend/src/stub_launcher.cc`.
    """
    is_plain = _PLAIN.fullmatch(name) is not None and id_problem(name) is None
    return name if is_plain else f"sm-{hashlib.sha256(name.encode()).hexdigest()}"


def named(name: str, url: str) -> Named:
    """Raises InvalidRequest: no model can have this name, or this url."""
    if name in (".", ".."):
        raise InvalidRequest(f"the name of a model cannot be {name!r}")
    return Named(name, url)


def checked_name(request: web.Request) -> str:
    """The name in the path. Raises InvalidRequest, HttpError: no model can have it."""
    return named(name_in(request), "-").name


def not_found(name: str) -> ModelNotLoaded:
    """The contract's 404."""
    return ModelNotLoaded(f"Model not found: {name}")


def _named_in(value: Any) -> Named:
    if not isinstance(value, dict):
        raise HttpError(400, "the body must be a JSON object with model_name and url")
    for field in ("model_name", "url"):
        if not isinstance(value.get(field), str) or not value[field]:
            raise HttpError(400, f"the body must have a {field}, which is a string")
    return named(value["model_name"], value["url"])
