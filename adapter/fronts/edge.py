"""
What stands around every request of every front: routes, names, bodies, errors.

A front is a list of routes and one way to write an error. All else is here, once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from aiohttp import web

from adapter.errors import UNEXPECTED, AdapterError
from adapter.fronts.answers import HttpError, status_of
from adapter.settings import HttpSettings

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, kw_only=True)
class Route:
    """One path and method."""

    method: str
    path: str
    """With names as `/models/{name}/invoke`. The pattern is the metric's label."""
    handler: Handler
    api: str
    """Of HTTP_RESTRICTED_API: health, metadata, inference, model-repository, model-config, statistics."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The operation in OpenAPI: summary, requestBody, responses."""


@dataclass(frozen=True, kw_only=True)
class Front:
    """One HTTP front."""

    name: str
    """`sagemaker`, `v2` or `lmi`: of metrics and logs."""
    title: str
    routes: Sequence[Route]
    fails: Callable[[web.Request, int, str, AdapterError | None], web.Response]
    """Writes an error: the request, its status, one line of text, and the failure behind it, where there is one."""


def application(front: Front, settings: HttpSettings) -> web.Application:
    """The front as aiohttp runs it."""

    @web.middleware
    async def around(request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            return await handler(request)
        except HttpError as refused:
            answer = front.fails(request, refused.status, refused.text, None)
            answer.headers.update(refused.headers)
            return answer
        except AdapterError as error:
            return front.fails(request, status_of(error), error.text, error)
        except web.HTTPException as error:
            return front.fails(request, error.status, error.reason, None)
        except Exception:  # noqa: BLE001 - never a text that nobody has read
            return front.fails(request, 500, UNEXPECTED, None)

    app = web.Application(middlewares=[around], client_max_size=settings.max_body_bytes)
    for route in front.routes:
        app.router.add_route(route.method, route.path, route.handler)
    return app


async def body_of(request: web.Request) -> bytes:
    """
    The whole body, decompressed.

    Raises:
        HttpError: 413, 415, or 400 for a body that is not what its encoding says.
    """
    return await request.read()


async def json_of(request: web.Request) -> Any:
    """
    The body as JSON; NaN and Infinity are numbers.

    Raises:
        HttpError: as `body_of`, or 400: no JSON, or nested deeper than 100 levels.
    """
    return parsed(await body_of(request))


def parsed(text: bytes | memoryview) -> Any:
    """A JSON text. Raises HttpError 400."""
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise HttpError(400, f"the body is no JSON: {error}") from error


def name_in(request: web.Request, what: str = "name") -> str:
    """A name in the path, percent-decoded once. Raises HttpError 400: it is no UTF-8."""
    return request.match_info[what]
