"""A body that does not come is given up."""

from __future__ import annotations

import pytest
from aiohttp import web

from adapter.fronts import bodies
from adapter.fronts.answers import json_answer
from adapter.fronts.edge import Request
from tests.unit.fronts.rigs import route, served


async def test_a_body_that_does_not_come_is_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "READ_SECONDS", 0.2)

    async def handler(request: Request) -> web.Response:
        return json_answer(await request.read_by(len))

    async with served(route("POST", "/x", handler)) as front:
        answer = await front.raw(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n12345")
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"has not come within 0.2 s" in answer
