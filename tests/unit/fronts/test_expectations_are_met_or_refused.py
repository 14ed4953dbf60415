"""`Expect`: a client that waits is told to send its body when its request is admitted; what else is expected is refused."""

from __future__ import annotations

import asyncio

import orjson
import pytest
from aiohttp import web
from structlog.testing import capture_logs

from adapter.fronts.answers import json_answer
from adapter.fronts.bodies import body_of
from tests.unit.fronts.rigs import SECONDS, parts_of, route, served

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


async def length(request: web.Request) -> web.Response:
    return json_answer(len(await body_of(request)))


@pytest.mark.parametrize(("method", "path"), [("POST", "/x"), ("POST", "/nothing"), ("GET", "/x")])
@pytest.mark.parametrize("expected", [b"a-cookie=secret", b"100-continue, secret", b"200-ok-secret"])
async def test_what_nobody_knows_is_417_in_json_with_an_id_and_a_line(method: str, path: str, expected: bytes) -> None:
    async with served(route("POST", "/x", length)) as front:
        with capture_logs() as lines:
            answer = await front.asked(method, path, [b"Expect: " + expected, b"X-Request-Id: mine"])
            status, headers, body = parts_of(answer)
            await asyncio.sleep(0)
    assert (status, headers["content-type"], headers["x-request-id"], headers["server"]) == (417, "application/json", "mine", "adapter")
    assert (list(orjson.loads(body)), headers["connection"]) == (["error"], "close")
    assert [(line["event"], line["status"]) for line in lines] == [("http", 417)]
    assert "secret" not in f"{lines}{answer!r}"


@pytest.mark.parametrize("expected", [b"100-continue", b"100-Continue"])
async def test_a_client_that_waits_is_told_to_send_its_body(expected: bytes) -> None:
    async with served(route("POST", "/x", length)) as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\nExpect: " + expected + b"\r\n\r\n")
        assert await asyncio.wait_for(reader.readexactly(len(CONTINUE)), SECONDS) == CONTINUE
        writer.write(b"12345")
        status, _, body = parts_of(await asyncio.wait_for(reader.read(), SECONDS))
        writer.close()
    assert (status, body) == (200, b"5")


async def test_a_client_that_is_refused_keeps_its_body() -> None:
    async with served(route("POST", "/x", length), restricted="inference:X-Key=s3cret") as front:
        reader, writer = await asyncio.open_connection("127.0.0.1", front.port)
        writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), SECONDS)
        writer.close()
    assert (head.startswith(b"HTTP/1.1 403 "), b"Connection: close" in head) == (True, True), head


async def test_http_1_0_expects_nothing() -> None:
    async with served(route("POST", "/x", length)) as front:
        answer = await front.raw(b"POST /x HTTP/1.0\r\nHost: x\r\nContent-Length: 2\r\nExpect: anything\r\n\r\nab")
    assert parts_of(answer)[::2] == (200, b"2")
