"""The ports of the fronts that are on: one aiohttp server for each, in the adapter's own loop."""

from __future__ import annotations

import asyncio
import ssl

from aiohttp import web

from adapter.errors import ListenError, StartError
from adapter.fronts.bodies import Budget
from adapter.fronts.edge import Front, Server, rules_of
from adapter.settings.fronts import HttpSettings

BACKLOG = 512
CLOSE_SECONDS = 1.0


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


def _tls(settings: HttpSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None or settings.tls_key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise StartError(f"HTTP_TLS_CERT {settings.tls_cert} and HTTP_TLS_KEY {settings.tls_key} cannot be used: {error}") from error
    return context
