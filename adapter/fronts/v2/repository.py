"""
The model repository API: index, load, unload. Shut unless V2_REPOSITORY_API opens it, and each call then says so.

Source: Triton's `docs/protocol/extension_model_repository.md`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp import web

from adapter.fronts.answers import HttpError, json_answer
from adapter.fronts.bodies import parsed, read_by
from adapter.fronts.edge import REPOSITORY, Route, name_in
from adapter.fronts.openapi import OBJECT, operation, shaped
from adapter.lifecycle.repository_api import RepositoryCalls
from adapter.model import Overrides, ServerModel

EXTENSIONS = ("model_repository", "model_repository(unload_dependents)")
CONFIG, FILE, DEPENDENTS = "config", "file:", "unload_dependents"
_INDEX, _WITH_PARAMETERS = shaped(ready={"type": "boolean"}), shaped(parameters=OBJECT)


def routes(api: RepositoryCalls | None) -> Sequence[Route]:
    """The three calls; None: they are shut."""
    handlers = _Shut() if api is None else _Handlers(api)
    index = operation("All models that could be loaded", body=_INDEX)
    load, unload = operation("Load a model", body=_WITH_PARAMETERS), operation("Unload a model", body=_WITH_PARAMETERS)
    return [
        Route("POST", "/v2/repository/index", handlers.index, REPOSITORY, index),
        Route("POST", "/v2/repository/models/{name}/load", handlers.load, REPOSITORY, load),
        Route("POST", "/v2/repository/models/{name}/unload", handlers.unload, REPOSITORY, unload),
    ]


class _Shut:
    async def index(self, _request: web.Request) -> web.Response:
        raise HttpError(403, "the model repository API is shut: V2_REPOSITORY_API=true opens it")

    load = unload = index


class _Handlers:
    def __init__(self, api: RepositoryCalls) -> None:
        self._api = api

    async def index(self, request: web.Request) -> web.Response:
        is_ready = await read_by(request, ready_only)
        rows = await self._api.index()
        return json_answer([_row(row) for row in rows if row.state == "READY" or not is_ready])

    async def load(self, request: web.Request) -> web.Response:
        name, overrides = name_in(request), await read_by(request, overrides_of)
        await self._api.load(name, overrides)
        return web.Response()

    async def unload(self, request: web.Request) -> web.Response:
        name, has_dependents = name_in(request), await read_by(request, with_dependents)
        await self._api.unload(name, has_dependents=has_dependents)
        return web.Response()


def _object(body: bytes) -> Mapping[str, Any]:
    """No body is an empty object."""
    value = parsed(body) if body.strip() else {}
    if not isinstance(value, dict):
        raise HttpError(400, "the body must be a JSON object")
    return value


def _parameters(body: bytes) -> Mapping[str, Any]:
    parameters = _object(body).get("parameters", {})
    if not isinstance(parameters, dict):
        raise HttpError(400, "'parameters' must be an object")
    return parameters


def ready_only(body: bytes) -> bool:
    """Of a request for the index. Raises HttpError: 400."""
    wanted = _object(body).get("ready", False)
    if not isinstance(wanted, bool):
        raise HttpError(400, "'ready' must be true or false")
    return wanted


def overrides_of(body: bytes) -> Overrides:
    """Of a request for a load. Raises HttpError: 400."""
    found: dict[str, str | bytes] = {}
    for key, value in _parameters(body).items():
        if key != CONFIG and not key.startswith(FILE):
            raise HttpError(400, f"there is no parameter {key!r} of a load; there are {CONFIG!r} and {FILE + '<version>/<name>'!r}")
        if not isinstance(value, str):
            raise HttpError(400, f"the parameter {key!r} must be a text")
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
        raise HttpError(400, f"the parameter {key!r} is no base64") from None


def with_dependents(body: bytes) -> bool:
    """Of a request for an unload. Raises HttpError: 400."""
    parameters = _parameters(body)
    if unknown := sorted(parameters.keys() - {DEPENDENTS}):
        raise HttpError(400, f"there is no parameter {unknown[0]!r} of an unload; there is {DEPENDENTS!r}")
    wanted = parameters.get(DEPENDENTS, False)
    if not isinstance(wanted, bool):
        raise HttpError(400, f"the parameter {DEPENDENTS!r} must be true or false")
    return wanted


def _row(row: ServerModel) -> Mapping[str, str]:
    """Without what Triton does not tell."""
    known = {"name": row.name, "version": row.version, "state": row.state, "reason": row.reason}
    return {key: value for key, value in known.items() if value or key == "name"}
