"""
The ports of the fronts that are on: one aiohttp server for each, in the adapter's own loop.

There are no more connections than may be, and what is no HTTP is answered and told as any other request: aiohttp by itself answers such
bytes in a text of its own, with its version, and logs a traceback for each.
"""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from aiohttp import http_exceptions, web

from adapter.errors import ListenError, StartError
from adapter.fronts import metrics
from adapter.fronts.bodies import FRONT, Budget
from adapter.fronts.edge import Edge, Front, rules_of
from adapter.settings.fronts import HttpSettings
from adapter.telemetry.redaction import remember

BACKLOG = 512
KEEP_ALIVE_SECONDS = 75.0
CLOSE_SECONDS = 1.0


class Listeners:
    """The ports that are open."""

    def __init__(self) -> None:
        self._open: list[tuple[Edge, web.AppRunner]] = []
        self._budget: Budget | None = None

    async def open(self, front: Front, port: int, variable: str, settings: HttpSettings) -> None:
        """
        Listen for one front; `variable` names its port in errors.

        Raises:
            ListenError: the port cannot be used.
            StartError: certificate, key or HTTP_RESTRICTED_API cannot be used.
        """
        self._budget = self._budget or Budget(settings.bodies_bytes)
        edge = Edge(front, settings, rules_of(_rules_text(settings)), self._budget)
        context = _tls(settings)
        runner = Runner(edge, settings)
        await runner.setup()
        self._open.append((edge, runner))
        try:
            site = web.TCPSite(runner, settings.address, port, ssl_context=context, backlog=BACKLOG, reuse_port=False)
            await site.start()
        except OSError as error:
            raise ListenError(f"{variable} {port} cannot be used: {(error.strerror or str(error)).lower()}") from error

    async def drained(self, seconds: float) -> None:
        """Refuse new requests with 503, and return when the running ones have ended, or the time is up."""
        await asyncio.gather(*(edge.drained(seconds) for edge, _ in self._open))

    async def close(self) -> None:
        """Close all ports and connections; running requests are cancelled."""
        for _, runner in self._open:
            await runner.cleanup()


class Runner(web.AppRunner):
    """Runs one front, counts its connections, and refuses more than there may be."""

    def __init__(self, edge: Edge, settings: HttpSettings) -> None:
        super().__init__(
            edge.application,
            access_log=None,
            handler_cancellation=True,
            auto_decompress=False,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            shutdown_timeout=CLOSE_SECONDS,
        )
        self._edge = edge
        self._most = settings.max_connections

    async def _make_server(self) -> Any:
        server = await super()._make_server()
        metrics.CONNECTIONS.labels(self._edge.application[FRONT]).set_function(lambda: len(server.connections))
        return _Server(server, self._edge, self._most)


class _Server:
    """An aiohttp server whose further connections are closed at once."""

    def __init__(self, server: Any, edge: Edge, most: int) -> None:
        self._server = server
        self._edge = edge
        self._most = most

    def __call__(self) -> asyncio.Protocol:
        if len(self._server.connections) >= self._most:
            return _Closed()
        return _Connection(self._edge, self._server, loop=asyncio.get_running_loop(), **self._server._kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


class _Connection(web.RequestHandler):
    __slots__ = ("_edge",)

    def __init__(self, edge: Edge, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._edge = edge

    def handle_error(
        self, request: web.BaseRequest, status: int = 500, exc: BaseException | None = None, message: str | None = None
    ) -> web.StreamResponse:
        """Of bytes that are no HTTP; all else a request's own handlers have answered."""
        if not isinstance(exc, http_exceptions.HttpProcessingError) or request.writer.output_size > 0:
            return super().handle_error(request, status, exc, message)
        return self._edge.no_http(request)


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _rules_text(settings: HttpSettings) -> str:
    for entry in settings.rules.split(";"):
        remember(entry.partition("=")[2].strip(), lasts=True)
    return settings.rules


def _tls(settings: HttpSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise StartError(f"HTTP_TLS_CERT {settings.tls_cert} and HTTP_TLS_KEY {settings.tls_key} cannot be used: {error}") from error
    return context
