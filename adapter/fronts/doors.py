"""
Opens and closes the ports of the fronts that are switched on: one aiohttp server for each, in the adapter's own loop.
"""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

from aiohttp import web

from adapter.errors import ListenError, StartError
from adapter.fronts import metrics
from adapter.fronts.edge import Edge, Front
from adapter.fronts.guards import rules_of
from adapter.settings import HttpSettings
from adapter.telemetry.redaction import remember

BACKLOG = 512
KEEP_ALIVE_SECONDS = 75.0
CLOSE_SECONDS = 1.0
MOST_RULES_BYTES = 64 * 1024


class Doors:
    """The ports that are open."""

    def __init__(self) -> None:
        self._open: list[tuple[Edge, web.AppRunner]] = []

    async def open(self, front: Front, port: int, variable: str, settings: HttpSettings) -> None:
        """
        Listen for one front; `variable` names its port in errors.

        Raises:
            ListenError: the port cannot be used.
            StartError: certificate, key or HTTP_RESTRICTED_API cannot be used.
        """
        edge = Edge(front, settings, rules_of(_rules_text(settings)))
        context = _tls(settings)
        runner = _Runner(edge, front.name, settings)
        await runner.setup()
        self._open.append((edge, runner))
        try:
            site = web.TCPSite(runner, settings.address, port, ssl_context=context, backlog=BACKLOG, reuse_port=False)
            await site.start()
        except OSError as error:
            raise ListenError(f"{variable} {port} cannot be used: {(error.strerror or str(error)).lower()}") from error

    async def drained(self, seconds: float) -> None:
        """Refuse new requests with 503, and return when the running ones have ended, or the time is up."""
        if self._open:
            await asyncio.gather(*(edge.drained(seconds) for edge, _ in self._open))

    async def close(self) -> None:
        """Close all ports and connections; running requests are cancelled."""
        for _, runner in self._open:
            await runner.cleanup()


class _Runner(web.AppRunner):
    """Counts connections, and refuses more than there may be."""

    def __init__(self, edge: Edge, name: str, settings: HttpSettings) -> None:
        super().__init__(
            edge.application,
            access_log=None,
            handler_cancellation=True,
            auto_decompress=False,
            keepalive_timeout=KEEP_ALIVE_SECONDS,
            shutdown_timeout=CLOSE_SECONDS,
        )
        self._most = settings.max_connections
        self._gauge = metrics.CONNECTIONS.labels(name)

    async def _make_server(self) -> Any:
        server = await super()._make_server()
        self._gauge.set_function(lambda: len(server.connections))
        return _Bounded(server, self._most)


class _Bounded:
    """An aiohttp server whose further connections are closed at once."""

    def __init__(self, server: Any, most: int) -> None:
        self._server = server
        self._most = most

    def __call__(self) -> asyncio.Protocol:
        if len(self._server.connections) >= self._most:
            return _Closed()
        protocol: asyncio.Protocol = self._server()
        return protocol

    def __getattr__(self, name: str) -> Any:
        return getattr(self._server, name)


class _Closed(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        transport.close()


def _rules_text(settings: HttpSettings) -> str:
    text = settings.restricted_api.text if settings.restricted_api is not None else ""
    if (path := settings.restricted_api_file) is not None:
        if text:
            raise StartError("HTTP_RESTRICTED_API and HTTP_RESTRICTED_API_FILE are both set; set one of them")
        text = _read(path, "HTTP_RESTRICTED_API_FILE")
    for entry in text.split(";"):
        remember(entry.partition("=")[2].strip(), lasts=True)
    return text


def _read(path: Path, variable: str) -> str:
    try:
        if not path.is_file():
            path.stat()
            raise StartError(f"{variable}: {path} is no file")
        with path.open("rb") as file:
            return file.read(MOST_RULES_BYTES).decode().strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise StartError(f"{variable}: {path} cannot be read: {reason}") from error


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
