"""A body that does not come is given up."""

from __future__ import annotations

import asyncio

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from adapter.fronts import bodies
from adapter.fronts.answers import json_answer
from adapter.fronts.edge import Edge, Front, Route
from adapter.settings import HttpSettings, read_group


async def test_a_body_that_does_not_come_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "READ_SECONDS", 0.2)

    async def handler(request: web.Request) -> web.Response:
        return json_answer(len(await bodies.body_of(request)))

    front = Front(
        name="v2",
        title="t",
        routes=[Route(method="POST", path="/x", handler=handler, api="inference", about={})],
        fails=lambda _request, status, text, _error: json_answer({"error": text}, status),
    )
    async with TestServer(Edge(front, read_group(HttpSettings, {}), {}).application) as server:
        reader, writer = await asyncio.open_connection(server.host, server.port)
        writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"has not come within 0.2 s" in answer
