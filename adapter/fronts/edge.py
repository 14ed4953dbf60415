"""
What stands around every request of every front: routes, names, limits, the canonical line, errors.

A front is a list of routes and one way to write an error. All else is here, once. A client that leaves cancels its handler
(aiohttp's `handler_cancellation`), and whatever the handler has asked for with it.
"""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

import orjson
import structlog
from aiohttp import hdrs, web
from structlog.contextvars import bound_contextvars

from adapter.errors import UNEXPECTED, AdapterError
from adapter.fronts import expectations, metrics, openapi
from adapter.fronts.answers import JSON, UNAVAILABLE, HttpError, bytes_answer, status_of
from adapter.fronts.bodies import MAX_BODY
from adapter.fronts.budget import BUDGET, FRONT, Budget
from adapter.fronts.guards import Rule
from adapter.model import is_utf8
from adapter.settings.fronts import HttpSettings
from adapter.telemetry import logs
from adapter.telemetry.redaction import in_one_line

REQUEST_ID = "X-Request-Id"
_REQUEST_ID = web.RequestKey("request_id", str)
SERVER = "adapter"
"""A version would help nobody but who looks for a weak one."""
_ID = re.compile(r"[!-~]{1,128}")
_NAME = re.compile(r"\{(\w+)\}")
"""Of a path. aiohttp's own pattern takes no braces, which the name of a model may have."""
_LONGEST_TEXT = 4096
_CLIENT_GONE = 499
"""Of logs and metrics alone. Source: nginx's name for it."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Route:
    """One path and method."""

    method: str
    path: str
    """With names as `/models/{name}/invoke`. The pattern is the metric's label."""
    handler: Handler
    api: str
    """Of HTTP_RESTRICTED_API: one of `guards.GROUPS`."""
    about: openapi.Operation
    """Of `/openapi.json`."""


@dataclass(frozen=True, kw_only=True)
class Front:
    """One HTTP front."""

    name: str
    """`sagemaker`, `v2` or `lmi`: of metrics and logs."""
    title: str
    """Of `/openapi.json`."""
    routes: Sequence[Route]
    fails: Callable[[web.BaseRequest, int, str, AdapterError | None], web.Response]
    """Writes an error: the request, its status, one line of text, and the failure behind it, where there is one."""
    echoed: Sequence[str] = ()
    """Headers of a request that its answer has, too."""


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
            path = _NAME.sub(r"{\1:[^/]+}", route.path)
            self.application.router.add_route(route.method, path, route.handler, expect_handler=expectations.postponed)
            self._routes[route.method, route.path] = route

    @property
    def name(self) -> str:
        """Of the front."""
        return self._front.name

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
        task = asyncio.current_task()
        with (
            logs.noting() as notes,
            bound_contextvars(request_id=line.request_id),
            self._in_flight.track_inprogress(),
        ):
            if task is not None:
                self._running.add(task)
            try:
                answer = await self._answer(request, handler, route, line)
            except asyncio.CancelledError:
                line.write(_CLIENT_GONE, notes, reason="cancelled")
                raise
            finally:
                self._budget.give_back(request)
                if task is not None:
                    self._running.discard(task)
            asyncio.get_running_loop().call_soon(line.write, answer.status, notes)  # its client does not wait for it
        return answer

    async def _answer(self, request: web.Request, handler: Handler, route: Route | None, line: _Line) -> web.StreamResponse:
        is_waiting = hdrs.EXPECT in request.headers
        try:
            if route is not None:
                self._admit(request, route)
                await expectations.met(request)
            is_waiting = False
            answer = await handler(request)
        except HttpError as refused:
            answer = self._failed(request, line, refused.status, refused.text, None)
            answer.headers.update(refused.headers)
        except AdapterError as error:
            answer = self._failed(request, line, status_of(error), error.text, error)
        except web.HTTPException as error:
            text = "the path does not exist" if error.status == 404 else f"{error.reason.lower()} here"
            answer = self._failed(request, line, error.status, text, None)
            if hdrs.ALLOW in error.headers:
                answer.headers[hdrs.ALLOW] = error.headers[hdrs.ALLOW]
        except Exception:
            log.exception("http.crashed", front=self._front.name, route=line.pattern)
            answer = self._failed(request, line, 500, UNEXPECTED, None)
        if not answer.prepared and (self.is_draining or is_waiting):
            answer.force_close()
        return answer

    def unrouted(self, request: web.BaseRequest, status: int, text: str) -> web.StreamResponse:
        """The answer to what aiohttp itself refuses, as bytes that are no HTTP; the connection ends with it."""
        line = _Line(self._front.name, request, "-", is_quiet=False)
        answer = self._failed(request, line, status, text, None)
        answer.headers.update({REQUEST_ID: line.request_id, hdrs.SERVER: SERVER})
        answer.force_close()
        line.write(status, {})
        return answer

    def unknown_method(self, request: web.BaseRequest) -> web.StreamResponse:
        """The answer to a method that HTTP's parser does not know; its path is not known then, so all methods of the front are told."""
        answer = self.unrouted(request, 405, "method not allowed here")
        answer.headers[hdrs.ALLOW] = ",".join(sorted({method for method, _ in self._routes}))
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
        if route.api != "health":
            self._check_room()
        rule = self._rules.get(route.api)
        if rule is not None and not rule.allows(request.headers):
            raise self._refused(403, "restricted", f"this API is restricted: it needs the header {rule.header}")

    def _check_room(self) -> None:
        if self.is_draining:
            raise self._refused(UNAVAILABLE, "draining", "the adapter is shutting down and takes no new requests")
        if len(self._running) > self._most:
            raise self._refused(UNAVAILABLE, "too_many", f"more than {self._most} requests at a time (HTTP_MAX_REQUESTS)")

    def _refused(self, status: int, reason: str, text: str) -> HttpError:
        metrics.REFUSED.labels(self._front.name, reason).inc()
        return HttpError(status, text)

    def _failed(self, request: web.BaseRequest, line: _Line, status: int, text: str, error: AdapterError | None) -> web.Response:
        text = in_one_line(text)[:_LONGEST_TEXT]
        line.error, line.reason = text, error.reason if error is not None else None
        return self._front.fails(request, status, text, error)


def _description(front: Front) -> Route:
    operations = [(route.method, route.path, route.about) for route in front.routes]
    body = orjson.dumps(openapi.document(front.title, operations))

    async def handler(_request: web.Request) -> web.Response:
        return bytes_answer(body, JSON)

    return Route(method="GET", path=openapi.PATH, handler=handler, api="metadata", about=openapi.operation("This description"))


def name_in(request: web.Request, what: str = "name") -> str:
    """A name in the path, percent-decoded once. Raises HttpError 400: it is no UTF-8, or has a NUL, at which Triton would cut it."""
    try:
        unquote_to_bytes(request.rel_url.raw_path).decode()  # aiohttp leaves an escape as it is where it stands for no letter
    except UnicodeError:
        raise HttpError(400, "the name in the path is no UTF-8") from None
    if "\0" in (name := request.match_info[what]):
        raise HttpError(400, "the name in the path has a NUL")
    return name


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

    def write(self, status: int, notes: Mapping[str, Any], reason: str | None = None) -> None:
        """Once for each request."""
        seconds = asyncio.get_running_loop().time() - self._started
        metrics.SECONDS.labels(self._front, self._method, self.pattern, str(status)).observe(seconds)
        reason = reason or self.reason
        failure = ({"reason": reason} if reason else {}) | ({"error": self.error} if self.error else {})
        place = {"front": self._front, "method": self._method, "route": self.pattern}
        write = log.debug if self._is_quiet else log.error if status == 500 else log.warning if status > 500 else log.info
        write("http", **{**notes, **place, "status": status, "seconds": round(seconds, 4), **failure})
