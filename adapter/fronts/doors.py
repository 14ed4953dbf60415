"""
Opens and closes the ports of the fronts that are switched on: one aiohttp server for each, in the adapter's own loop.
"""

from __future__ import annotations

import asyncio
import ssl

from aiohttp import web

from adapter.errors import ListenError, StartError
from adapter.fronts.budget import Budget
from adapter.fronts.connections import Runner
from adapter.fronts.edge import Edge, Front
from adapter.fronts.guards import rules_of
from adapter.settings.files import text_of
from adapter.settings.fronts import HttpSettings
from adapter.telemetry.redaction import remember

BACKLOG = 512
MOST_RULES_BYTES = 64 * 1024


class Doors:
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
        if self._open:
            await asyncio.gather(*(edge.drained(seconds) for edge, _ in self._open))

    async def close(self) -> None:
        """Close all ports and connections; running requests are cancelled."""
        for _, runner in self._open:
            await runner.cleanup()


def _rules_text(settings: HttpSettings) -> str:
    try:
        text = text_of("HTTP_RESTRICTED_API", settings.restricted_api, settings.restricted_api_file, MOST_RULES_BYTES) or ""
    except ValueError as error:
        raise StartError(str(error)) from error
    for entry in text.split(";"):
        remember(entry.partition("=")[2].strip(), lasts=True)
    return text


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
