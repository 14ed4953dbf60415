"""A front of a few routes behind a socket, as the adapter runs it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from aiohttp import web

from adapter.fronts.answers import json_answer
from adapter.fronts.bodies import Budget
from adapter.fronts.edge import Front, Handler, Request, Route, Server, rules_of
from adapter.settings import read_group
from adapter.settings.fronts import HttpSettings

SECONDS = 20


@dataclass(frozen=True)
class Served:
    """The port of a front, and what works on its requests."""

    port: int
    edge: Server

    async def raw(self, text: bytes) -> bytes:
        """What comes back for these bytes, until the server closes."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            writer.write(text)
            return await asyncio.wait_for(reader.read(), SECONDS)
        finally:
            writer.close()

    async def asked(self, method: str, path: str, headers: Sequence[bytes] = (), body: bytes = b"") -> bytes:
        """One request on a connection that ends with it."""
        lines = [f"{method} {path} HTTP/1.1".encode(), b"Host: x", b"Connection: close", b"Content-Length: %d" % len(body), *headers]
        return await self.raw(b"\r\n".join(lines) + b"\r\n\r\n" + body)


def route(method: str, path: str, handler: Handler) -> Route:
    """Of the group `inference`."""
    return Route(method=method, path=path, handler=handler, api="inference")


@asynccontextmanager
async def served(*routes: Route, echoed: Sequence[str] = (), restricted: str = "", **env: str) -> AsyncIterator[Served]:
    """A front that writes errors as V2 does; `restricted` as HTTP_RESTRICTED_API, the settings as with these variables."""

    def fails(_request: Request, status: int, text: str) -> web.Response:
        return json_answer({"error": text}, status)

    settings = read_group(HttpSettings, env)
    edge = Server(
        Front(name="v2", routes=routes, fails=fails, echoed=echoed),
        settings,
        rules_of(restricted),
        Budget(settings.bodies_bytes),
    )
    runner = web.ServerRunner(edge)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield Served(runner.addresses[0][1], edge)
    finally:
        await runner.cleanup()


def parts_of(answer: bytes) -> tuple[int, dict[str, str], bytes]:
    """Status, headers with names in lower case, and body."""
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    pairs = (line.partition(": ") for line in lines)
    return int(first.split()[1]), {name.lower(): value for name, _, value in pairs}, body
