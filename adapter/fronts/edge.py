"""
What stands around every request of every front: routes, names, limits, the canonical line, errors.

A front is a list of routes and one way to write an error. All else is here, once, on aiohttp's low-level server, in the adapter's own
loop. A client that leaves cancels its handler, and whatever the handler has asked for with it.
"""

from __future__ import annotations

import asyncio
import hmac
import re
import ssl
import time
import uuid
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import unquote_to_bytes

import structlog
from aiohttp import hdrs, http_exceptions, web
from structlog.contextvars import bound_contextvars

from adapter.errors import UNEXPECTED, AdapterError, ListenError, StartError
from adapter.fronts.answers import JSON, bytes_answer
from adapter.fronts.bodies import CONNECTIONS, IN_FLIGHT, REFUSED, SECONDS, Bodies, Budget
from adapter.fronts.failures import UNAVAILABLE, HttpError, status_of
from adapter.model import is_utf8
from adapter.settings.fronts import HttpSettings
from adapter.telemetry import logs
from adapter.telemetry.redaction import in_one_line, remember

REQUEST_ID = "X-Request-Id"
SERVER = "adapter"
"""A version would help only an attacker that looks for a weak one."""
REPOSITORY = "model-repository"
GROUPS = frozenset({"health", "metadata", "inference", REPOSITORY, "model-config", "statistics"})
"""Of routes, for HTTP_RESTRICTED_API."""
KEEP_ALIVE_SECONDS = 75.0
BACKLOG = 512
CLOSE_SECONDS = 1.0
_ID = re.compile(r"[!-~]{1,128}")
_NAME = re.compile(r"\\{(\w+)\\}")
"""Of a path, escaped."""
_RULE = re.compile(r"([^:]*):([A-Za-z0-9!#$%&'*+.^_`|~-]+)=(.+)", re.DOTALL)
"""Groups of calls, a header, its value. Source: RFC 9110, token."""
_LONGEST_TEXT = 4096
_CLIENT_GONE = 499
"""Of logs and metrics alone. Source: nginx's name for it."""
log = structlog.stdlib.get_logger(__name__)


class Request(Bodies):
    """A request of a front."""

    def __init__(self, server: Server, *parts: Any) -> None:
        super().__init__(*parts, loop=asyncio.get_running_loop())  # type: ignore[misc]
        self.server = server
        self.front, self.limit, self.budget = server.front.name, server.settings.max_body_bytes, server.budget
        self.route, self.parts = server.found(self.method, self.rel_url.raw_path)
        given = self.headers.get(REQUEST_ID, "")
        self.id = given if _ID.fullmatch(given) else uuid.uuid4().hex
        self.started = time.monotonic()

    @property
    def name(self) -> str:
        """The name in the path, percent-decoded. Raises HttpError 400: it is no UTF-8, or has a NUL, at which Triton would cut it."""
        try:
            name = unquote_to_bytes(self.parts["name"]).decode()
        except UnicodeError:
            raise HttpError(400, "the name in the path is no UTF-8") from None
        if "\0" in name:
            raise HttpError(400, "the name in the path has a NUL")
        return name

    async def _prepare_hook(self, response: web.StreamResponse) -> None:
        """Aiohttp calls it before the head of every answer is written, also of one that a handler writes."""
        response.headers[REQUEST_ID] = self.id
        response.headers[hdrs.SERVER] = SERVER
        if response.status == UNAVAILABLE:
            response.headers[hdrs.RETRY_AFTER] = "1"
        for name in self.server.front.echoed:
            value = ", ".join(self.headers.getall(name, ()))
            if name in self.headers and is_utf8(value):  # aiohttp leaves out bytes that are none where it writes
                response.headers[name] = value


Handler = Callable[[Request], Awaitable[web.StreamResponse]]


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
    fails: Callable[[Request, int, str], web.Response]
    """Writes an error: the request, its status, one line of text."""
    echoed: Sequence[str] = ()
    """Headers of a request that its answer has, too."""


Rule = tuple[str, str]
"""A header and its value, without which a group of calls is refused."""


class Server(web.Server):
    """One front as aiohttp runs it. Connections beyond their bound are closed at once."""

    def __init__(self, front: Front, settings: HttpSettings, rules: Mapping[str, Rule], budget: Budget) -> None:
        super().__init__(
            cast("Any", self._handle),
            request_factory=cast("Any", lambda *parts: Request(self, *parts)),
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
        )
        self.front = front
        self.settings = settings
        self.budget = budget
        self.is_draining = False
        self._rules = rules
        self._running: set[asyncio.Task[Any]] = set()
        self._in_flight = IN_FLIGHT.labels(front.name)
        CONNECTIONS.labels(front.name).set_function(lambda: len(self.connections))
        self._routes: dict[re.Pattern[str], dict[str, Route]] = {}
        described = partial(_description, text=Path(__file__).with_name(f"{front.name}.openapi.json").read_bytes())
        for route in (*front.routes, Route("GET", "/openapi.json", described, "metadata")):
            pattern = re.compile(_NAME.sub(r"(?P<\1>[^/]+)", re.escape(route.path)))
            self._routes.setdefault(pattern, {})[route.method] = route

    def __call__(self) -> Any:
        """The protocol of a new connection."""
        if len(self.connections) >= self.settings.max_connections:
            return _Closed()
        return _Connection(self, loop=self._loop, **self._kwargs)

    def found(self, method: str, path: str) -> tuple[Route, Mapping[str, str]]:
        """The route of a request, and what stands in its path. Where there is none, its handler says so."""
        for pattern, methods in self._routes.items():
            if found := pattern.fullmatch(path):
                route = methods.get(method) or _no_route(405, "method not allowed here", Allow=",".join(sorted(methods)))
                return route, found.groupdict()
        return _no_route(404, "the path does not exist"), {}

    async def drained(self, seconds: float) -> None:
        """Refuse new requests, and return when the running ones have ended, or the time is up."""
        self.is_draining = True
        if self._running:
            await asyncio.wait(list(self._running), timeout=seconds)

    async def _handle(self, request: Request) -> web.StreamResponse:
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        with logs.noting() as notes, bound_contextvars(request_id=request.id), self._in_flight.track_inprogress():
            self._running.add(task)
            try:
                answer = await self._answered(request)
            except asyncio.CancelledError:
                _tell(request, _CLIENT_GONE, {**notes, "reason": "cancelled"})
                raise
            finally:
                request.give_back()
                self._running.discard(task)
            asyncio.get_running_loop().call_soon(_tell, request, answer.status, notes)  # its client does not wait for it
        return answer

    async def _answered(self, request: Request) -> web.StreamResponse:
        try:
            self._admit(request, request.route.api)
            answer = await request.route.handler(request)
        except HttpError as refused:
            answer = self._failed(request, refused.status, refused.text)
            answer.headers.update(refused.headers)
        except AdapterError as error:
            logs.note(reason=error.reason)
            answer = self._failed(request, status_of(error), error.text)
        except (RecursionError, OverflowError):
            answer = self._failed(request, 400, "the JSON is nested too deeply, or has a number that is too large")
        except Exception:
            log.exception("http.crashed", front=self.front.name, route=request.route.path)
            answer = self._failed(request, 500, UNEXPECTED)
        if self.is_draining and not answer.prepared:
            answer.force_close()
        return answer

    def _admit(self, request: Request, api: str) -> None:
        rule = self._rules.get(api)
        if api != "health" and self.is_draining:
            raise self._refused(UNAVAILABLE, "draining", "the adapter is shutting down and takes no new requests")
        if api != "health" and len(self._running) > self.settings.max_requests:
            most = self.settings.max_requests
            raise self._refused(UNAVAILABLE, "too_many", f"more than {most} requests at a time (HTTP_MAX_REQUESTS)")
        if rule is not None and not _allows(rule, request.headers):
            raise self._refused(403, "restricted", f"this API is restricted: it needs the header {rule[0]}")

    def _refused(self, status: int, reason: str, text: str) -> HttpError:
        REFUSED.labels(self.front.name, reason).inc()
        return HttpError(status, text)

    def _failed(self, request: Request, status: int, text: str) -> web.Response:
        text = in_one_line(text)[:_LONGEST_TEXT]
        logs.note(error=text)
        return self.front.fails(request, status, text)


def _allows(rule: Rule, headers: Mapping[str, str]) -> bool:
    """Whether a request carries the header. Takes the same time for each wrong value."""
    return hmac.compare_digest(headers.get(rule[0], "").encode("utf-8", "surrogateescape"), rule[1].encode())


class _Connection(web.RequestHandler):
    def handle_error(self, request: Any, status: int = 500, exc: BaseException | None = None, message: str | None = None) -> Any:
        """Of bytes that are no HTTP, which are neither repeated nor logged: they may hold a secret."""
        if not isinstance(exc, http_exceptions.HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        answer = request.server.front.fails(request, 400, "the request is not HTTP")
        answer.force_close()
        return answer


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


async def _description(_request: Request, text: bytes) -> web.Response:
    return bytes_answer(text, JSON)


def _no_route(status: int, text: str, **headers: str) -> Route:
    async def handler(_request: Request) -> web.Response:
        raise HttpError(status, text, headers)

    return Route("-", "-", handler, "-")


def _tell(request: Request, status: int, notes: Mapping[str, Any]) -> None:
    """The metrics and the canonical log line of one request: once for each."""
    seconds = time.monotonic() - request.started
    method = request.method if request.method in hdrs.METH_ALL else "-"
    place = {"front": request.front, "method": method, "route": request.route.path}
    SECONDS.labels(*place.values(), str(status)).observe(seconds)
    write = log.debug if request.route.api == "health" else log.error if status == 500 else log.warning if status > 500 else log.info
    write("http", **{**notes, **place, "status": status, "seconds": round(seconds, 4)})


def rules_of(text: str) -> dict[str, Rule]:
    """
    HTTP_RESTRICTED_API: group of calls → its rule.

    The form is `group,group:Header=value`, several of them joined by `;`. Source of the idea: Triton's `--http-restricted-api`.

    Raises:
        StartError: the text is not of the form; no value is quoted.
    """
    found: dict[str, Rule] = {}
    for entry in filter(None, map(str.strip, text.split(";"))):
        if not (form := _RULE.fullmatch(entry)):
            raise StartError("HTTP_RESTRICTED_API: each entry is written as model-repository,model-config:Header=value")
        names, header, value = form.groups()
        remember(value, lasts=True)
        for name in map(str.strip, names.split(",")):
            if name not in GROUPS:
                raise StartError(f"HTTP_RESTRICTED_API: there is no group of calls {name!r}; there are {', '.join(sorted(GROUPS))}")
            if name in found:
                raise StartError(f"HTTP_RESTRICTED_API: the group {name} has two rules")
            found[name] = (header, value)
    return found


class Listeners:
    """The ports that are open."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._budget = Budget(settings.bodies_bytes)
        self._open: list[tuple[Server, web.ServerRunner]] = []

    async def open(self, front: Front, port: int, variable: str) -> None:
        """
        Listen for one front; `variable` names its port in errors.

        Raises:
            ListenError: the port cannot be used.
            StartError: certificate, key or HTTP_RESTRICTED_API cannot be used.
        """
        server = Server(front, self._settings, rules_of(self._settings.rules), self._budget)
        context = _tls(self._settings)
        runner = web.ServerRunner(server, shutdown_timeout=CLOSE_SECONDS)
        await runner.setup()
        self._open.append((server, runner))
        try:
            await web.TCPSite(runner, self._settings.address, port, ssl_context=context, backlog=BACKLOG, reuse_port=False).start()
        except OSError as error:
            raise ListenError(f"{variable} {port} cannot be used: {(error.strerror or str(error)).lower()}") from error

    async def drained(self, seconds: float) -> None:
        """Refuse new requests with 503, and return when the running ones have ended, or the time is up."""
        await asyncio.gather(*(server.drained(seconds) for server, _ in self._open))

    async def close(self) -> None:
        """Close all ports and connections; running requests are cancelled."""
        for _, runner in self._open:
            await runner.cleanup()
        await self._budget.parser.close()


def _tls(settings: HttpSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise StartError(f"HTTP_TLS_CERT {settings.tls_cert} and HTTP_TLS_KEY {settings.tls_key} cannot be used: {error}") from error
    return context
