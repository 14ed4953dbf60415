"""A method that nobody knows is an error of HTTP's, not of its bytes; logs and metrics do not repeat it."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from aiohttp import web
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from adapter.fronts.answers import json_answer
from adapter.telemetry.metrics import REGISTRY
from tests.unit.fronts.rigs import parts_of, route, served


async def handler(_request: web.Request) -> web.Response:
    return json_answer({})


@pytest.mark.parametrize("method", ["FOO", "get", "GETX", "G.T", "PLAY", "PROPFIND"])
async def test_a_foreign_method_is_405_in_json_with_a_line(method: str) -> None:
    async with served(route("GET", "/x", handler), route("POST", "/x", handler)) as front:
        with capture_logs() as lines:
            answer = await front.asked(method, "/x?a=secret")
            await asyncio.sleep(0)
    status, headers, body = parts_of(answer)
    assert (status, headers["content-type"], headers["allow"]) == (405, "application/json", "GET,POST")
    assert ("x-request-id" in headers, orjson.loads(body)) == (True, {"error": "method not allowed here"})
    assert [(line["event"], line["status"], line["method"], line["route"]) for line in lines] == [("http", 405, "-", "-")]
    assert f'"{method}"' not in generate_latest(REGISTRY).decode()
    assert method not in str(lines) + body.decode()
    assert "secret" not in f"{lines}{answer!r}"


@pytest.mark.parametrize(
    "text",
    [b"NONSENSE\r\n\r\n", b"F:O /x HTTP/1.1\r\n\r\n", b"FOO /x HTTP/3.7\r\n\r\n", b"FOO  HTTP/1.1\r\n\r\n", b"FOO /x SIP/2.0\r\n\r\n"],
)
async def test_what_is_no_http_is_400(text: bytes) -> None:
    async with served(route("GET", "/x", handler)) as front:
        assert parts_of(await front.raw(text))[0] == 400
