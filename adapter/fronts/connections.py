"""
Connections of one front as aiohttp has them: no more than may be, and what is no HTTP is answered and told as any other request.

aiohttp by itself answers such bytes in a text of its own, with its version, and logs a traceback for each.
"""

from __future__ import annotations

import asyncio
import re
from typing import Any

from aiohttp import http_exceptions, web

from adapter.fronts import expectations, metrics
from adapter.fronts.edge import Edge
from adapter.settings.fronts import HttpSettings

KEEP_ALIVE_SECONDS = 75.0
CLOSE_SECONDS = 1.0
_REQUEST_LINE = re.compile(r"^  b(['\"])[\w!#$%&'*+.^`|~-]+ [!-~]+ HTTP/1\.[01]\1$", re.ASCII | re.MULTILINE)
"""As aiohttp's parser quotes it in its message."""


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
        metrics.CONNECTIONS.labels(self._edge.name).set_function(lambda: len(server.connections))
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
        options = self._server._kwargs
        return _Connection(self._edge, self._server, loop=asyncio.get_running_loop(), **options)

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
        if isinstance(exc, http_exceptions.BadStatusLine) and _REQUEST_LINE.search(exc.message):
            return self._edge.unknown_method(request)
        return self._edge.unrouted(request, 400, _words(exc))

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Of an Expect on a path that does not exist, too: aiohttp refuses it before it looks for a handler."""
        if isinstance(resp, web.HTTPExpectationFailed):
            resp = self._edge.unrouted(request, resp.status, expectations.UNKNOWN)
        return await super().finish_response(request, resp, start_time)


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _words(exc: http_exceptions.HttpProcessingError) -> str:
    """What is wrong, and nothing of what was sent: it may hold a secret."""
    if isinstance(exc, http_exceptions.LineTooLong):
        return "the request is no HTTP: its first line or a header is too long"
    return f"the request is no HTTP: {exc.message.splitlines()[0].rstrip(':').lower() if exc.message else 'it cannot be parsed'}"
