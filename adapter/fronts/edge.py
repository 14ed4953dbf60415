"""
What stands around every request of every front: routes, names, limits, the canonical line, errors.

A front is a list of routes and one way to write an error. All else is here, once. A client that leaves cancels its handler
(aiohttp's `handler_cancellation`), and whatever the handler has asked for with it.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote_to_bytes

import orjson
import structlog
from aiohttp import hdrs, web
from structlog.contextvars import bound_contextvars

from adapter.errors import UNEXPECTED, AdapterError, StartError
from adapter.fronts import metrics
from adapter.fronts.answers import UNAVAILABLE, HttpError, json_answer, status_of
from adapter.fronts.bodies import BUDGET, FRONT, MAX_BODY, Budget
from adapter.model import is_utf8
from adapter.settings.fronts import HttpSettings
from adapter.telemetry import logs
from adapter.telemetry.redaction import in_one_line

REQUEST_ID = "X-Request-Id"
SERVER = "adapter"
"""A version would help nobody but who looks for a weak one."""
REPOSITORY = "model-repository"
GROUPS = frozenset({"health", "metadata", "inference", REPOSITORY, "model-config", "statistics"})
"""Of routes, for HTTP_RESTRICTED_API."""
_REQUEST_ID = web.RequestKey("request_id", str)
_ID = re.compile(r"[!-~]{1,128}")
_NAME = re.compile(r"\{(\w+)\}")
"""Of a path. aiohttp's own pattern takes no braces, which the name of a model may have."""
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""Source: RFC 9110, token."""
_LONGEST_TEXT = 4096
_CLIENT_GONE = 499
"""Of logs and metrics alone. Source: nginx's name for it."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Route:
    """One path and method."""

    method: str
    path: str
    """With names as `/models/{name}/invoke`. The pattern is the metric's label."""
    handler: Handler
    api: str
    """One of `GROUPS`."""


@dataclass(frozen=True, kw_only=True)
class Front:
    """One HTTP front."""

    name: str
    """`sagemaker`, `v2` or `lmi`: of metrics, logs, and the file that describes it."""
    routes: Sequence[Route]
    fails: Callable[[web.BaseRequest, int, str], web.Response]
    """Writes an error: the request, its status, one line of text."""
    echoed: Sequence[str] = ()
    """Headers of a request that its answer has, too."""


@dataclass(frozen=True)
class Rule:
    """A header without which a group of calls is refused."""

    header: str
    value: str

    def allows(self, headers: Mapping[str, str]) -> bool:
        """Whether a request carries it. Takes the same time for each wrong value."""
        return hmac.compare_digest(headers.get(self.header, "").encode("utf-8", "surrogateescape"), self.value.encode())


class Edge:
    """One front as aiohttp runs it, and what it works on."""

    def __init__(self, front: Front, settings: HttpSettings, rules: Mapping[str, Rule], budget: Budget) -> None:
        self._front = front
        self._most = settings.max_requests
        self._rules = rules
        self._running: set[asyncio.Task[Any]] = set()
        self._in_flight = metrics.IN_FLIGHT.labels(front.name)
        self.is_draining = False
        self.application = web.Application(middlewares=[self._around])
        self.application[MAX_BODY] = settings.max_body_bytes
        self.application[BUDGET] = self._budget = budget
        self.application[FRONT] = front.name
        self.application.on_response_prepare.append(self._dress)
        self._routes: dict[tuple[str, str], Route] = {}
        for route in (*front.routes, _description(front)):
            self.application.router.add_route(route.method, _NAME.sub(r"{\1:[^/]+}", route.path), route.handler)
            self._routes[route.method, route.path] = route

    async def drained(self, seconds: float) -> None:
        """Refuse new requests, and return when the running ones have ended, or the time is up."""
        self.is_draining = True
        if self._running:
            await asyncio.wait(list(self._running), timeout=seconds)

    @web.middleware
    async def _around(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        resource = request.match_info.route.resource
        pattern = resource.canonical if resource is not None else "-"
        route = self._routes.get((request.method, pattern))
        line = _Line(self._front.name, request, pattern, is_quiet=route is not None and route.api == "health")
        request[_REQUEST_ID] = line.request_id
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        with logs.noting() as notes, bound_contextvars(request_id=line.request_id), self._in_flight.track_inprogress():
            self._running.add(task)
            try:
                answer = await self._answer(request, handler, route, line)
            except asyncio.CancelledError:
                line.reason = "cancelled"
                line.write(_CLIENT_GONE, notes)
                raise
            finally:
                self._budget.give_back(request)
                self._running.discard(task)
            asyncio.get_running_loop().call_soon(line.write, answer.status, notes)  # its client does not wait for it
        return answer

    async def _answer(self, request: web.Request, handler: Handler, route: Route | None, line: _Line) -> web.StreamResponse:
        try:
            if route is not None:
                self._admit(request, route)
            answer = await handler(request)
        except HttpError as refused:
            answer = self._failed(request, line, refused.status, refused.text)
            answer.headers.update(refused.headers)
        except AdapterError as error:
            line.reason = error.reason
            answer = self._failed(request, line, status_of(error), error.text)
        except web.HTTPException as error:
            text = "the path does not exist" if error.status == 404 else f"{error.reason.lower()} here"
            answer = self._failed(request, line, error.status, text)
            if hdrs.ALLOW in error.headers:
                answer.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
        except Exception:
            log.exception("http.crashed", front=self._front.name, route=line.pattern)
            answer = self._failed(request, line, 500, UNEXPECTED)
        if self.is_draining and not answer.prepared:
            answer.force_close()
        return answer

    def no_http(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to bytes that are no HTTP, which it does not repeat: they may hold a secret. The connection ends with it."""
        line = _Line(self._front.name, request, "-", is_quiet=False)
        answer = self._failed(request, line, 400, "the request is no HTTP")
        answer.headers.update({REQUEST_ID: line.request_id, hdrs.SERVER: SERVER})
        answer.force_close()
        line.write(400, {})
        return answer

    async def _dress(self, request: web.Request, answer: web.StreamResponse) -> None:
        """Headers of every answer, also of one that a handler has begun to write."""
        if _REQUEST_ID in request:
            answer.headers[REQUEST_ID] = request[_REQUEST_ID]
        answer.headers[hdrs.SERVER] = SERVER
        for name in self._front.echoed:
            value = ", ".join(request.headers.getall(name, ()))
            if name in request.headers and is_utf8(value):  # aiohttp leaves out bytes that are none where it writes
                answer.headers[name] = value

    def _admit(self, request: web.Request, route: Route) -> None:
        rule = self._rules.get(route.api)
        if route.api != "health" and self.is_draining:
            raise self._refused(UNAVAILABLE, "draining", "the adapter is shutting down and takes no new requests")
        if route.api != "health" and len(self._running) > self._most:
            raise self._refused(UNAVAILABLE, "too_many", f"more than {self._most} requests at a time (HTTP_MAX_REQUESTS)")
        if rule is not None and not rule.allows(request.headers):
            raise self._refused(403, "restricted", f"this API is restricted: it needs the header {rule.header}")

    def _refused(self, status: int, reason: str, text: str) -> HttpError:
        metrics.REFUSED.labels(self._front.name, reason).inc()
        return HttpError(status, text)

    def _failed(self, request: web.BaseRequest, line: _Line, status: int, text: str) -> web.Response:
        line.error = in_one_line(text)[:_LONGEST_TEXT]
        return self._front.fails(request, status, line.error)


def _description(front: Front) -> Route:
    """OpenAPI 3.1 of the paths that the front has."""
    document = orjson.loads(Path(__file__).with_name(f"{front.name}.openapi.json").read_bytes())
    paths = {route.path for route in front.routes}
    document["paths"] = {path: about for path, about in document["paths"].items() if path in paths}

    async def handler(_request: web.Request) -> web.Response:
        return json_answer(document)

    return Route("GET", "/openapi.json", handler, "metadata")


def name_in(request: web.Request) -> str:
    """The name in the path, percent-decoded once. Raises HttpError 400: it is no UTF-8, or has a NUL, at which Triton would cut it."""
    try:
        unquote_to_bytes(request.rel_url.raw_path).decode()  # aiohttp leaves an escape as it is where it stands for no letter
    except UnicodeError:
        raise HttpError(400, "the name in the path is no UTF-8") from None
    if "\0" in (name := request.match_info["name"]):
        raise HttpError(400, "the name in the path has a NUL")
    return name


def rules_of(text: str) -> dict[str, Rule]:
    """
    HTTP_RESTRICTED_API: group of calls → its rule.

    The form is `group,group:Header=value`, several of them joined by `;`. Source of the idea: Triton's `--http-restricted-api`.

    Raises:
        StartError: the text is not of the form; no value is quoted.
    """
    found: dict[str, Rule] = {}
    for entry in filter(None, (part.strip() for part in text.split(";"))):
        names, colon, pair = entry.partition(":")
        header, equals, value = pair.partition("=")
        if not (colon and equals and value and _HEADER.fullmatch(header)):
            raise StartError("HTTP_RESTRICTED_API: each entry is written as model-repository,model-config:Header=value")
        for name in (part.strip() for part in names.split(",")):
            if name not in GROUPS:
                raise StartError(f"HTTP_RESTRICTED_API: there is no group of calls {name!r}; there are {', '.join(sorted(GROUPS))}")
            if name in found:
                raise StartError(f"HTTP_RESTRICTED_API: the group {name} has two rules")
            found[name] = Rule(header, value)
    return found


class _Line:
    """The metrics and the canonical log line of one request."""

    def __init__(self, front: str, request: web.BaseRequest, pattern: str, *, is_quiet: bool) -> None:
        given = request.headers.get(REQUEST_ID, "")
        self.request_id = given if _ID.fullmatch(given) else uuid.uuid4().hex
        self.pattern = pattern
        self.error: str | None = None
        self.reason: str | None = None
        self._front = front
        self._method = request.method if request.method in hdrs.METH_ALL else "-"
        self._is_quiet = is_quiet
        self._started = asyncio.get_running_loop().time()

    def write(self, status: int, notes: Mapping[str, Any]) -> None:
        """Once for each request."""
        seconds = asyncio.get_running_loop().time() - self._started
        metrics.SECONDS.labels(self._front, self._method, self.pattern, str(status)).observe(seconds)
        failure = {name: value for name, value in (("reason", self.reason), ("error", self.error)) if value}
        place = {"front": self._front, "method": self._method, "route": self.pattern}
        write = log.debug if self._is_quiet else log.error if status == 500 else log.warning if status > 500 else log.info
        write("http", **{**notes, **place, "status": status, "seconds": round(seconds, 4), **failure})
