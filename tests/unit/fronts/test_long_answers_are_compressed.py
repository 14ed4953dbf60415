"""A long answer has an encoding that its client names."""

from __future__ import annotations

import zlib

import pytest
from aiohttp import web

from adapter.fronts.answers import COMPRESSED_FROM_BYTES, bytes_answer, compressed
from adapter.fronts.edge import Request
from tests.unit.fronts.rigs import parts_of, route, served


@pytest.mark.parametrize(
    ("header", "size", "coding"),
    [
        (b"deflate", COMPRESSED_FROM_BYTES, "deflate"),
        (b"GZip, br", COMPRESSED_FROM_BYTES, "gzip"),
        (b"gzip", COMPRESSED_FROM_BYTES - 1, None),
        (b"br", COMPRESSED_FROM_BYTES, None),
        (b"gzip", 3 * 2**20, "gzip"),
    ],
)
async def test_an_answer_has_the_coding_that_was_named(header: bytes, size: int, coding: str | None) -> None:
    async def handler(_request: Request) -> web.Response:
        return compressed(bytes_answer(b"a" * size, "application/json"))

    async with served(route("GET", "/x", handler)) as front:
        status, headers, body = parts_of(await front.asked("GET", "/x", [b"Accept-Encoding: " + header]))
    assert (status, headers.get("content-encoding")) == (200, coding)
    assert (body if coding is None else zlib.decompress(body, 47)) == b"a" * size
