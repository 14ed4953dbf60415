"""`Accept` and `Accept-Encoding` are lists with weights, never texts to search in."""

from __future__ import annotations

import zlib

import pytest
from aiohttp import web

from adapter.fronts.answers import COMPRESSED_FROM_BYTES, bytes_answer, coding_of, compressed, takes_json
from adapter.fronts.edge import Request
from tests.unit.fronts.rigs import parts_of, route, served


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ([], None),
        ([""], None),
        (["gzip"], "gzip"),
        (["GZip"], "gzip"),
        (["x-gzip"], "gzip"),
        (["deflate"], "deflate"),
        (["gzip, deflate, br"], "gzip"),
        (["deflate, gzip"], "gzip"),
        (["br", "deflate"], "deflate"),
        (["gzip;q=0.5, deflate;q=0.8"], "deflate"),
        (["gzip ; Q=0.500 ,deflate;q=0.4"], "gzip"),
        (["gzip;q=0"], None),
        (["gzip;q=0.000, deflate;q=0"], None),
        (["gzip;q=0, deflate"], "deflate"),
        (["xgzip"], None),
        (["gzipped, deflated"], None),
        (["*"], "gzip"),
        (["*;q=0"], None),
        (["gzip;q=0, *"], "deflate"),
        (["gzip;q=0.2, *;q=0.1"], "gzip"),
        (["identity"], None),
        (["identity, gzip;q=0.5"], None),
        (["identity;q=0.5, gzip"], "gzip"),
        (["gzip, identity"], "gzip"),
        (["identity;q=0, gzip;q=0.1"], "gzip"),
        (["gzip;q=high"], None),
        (["gzip;q=2"], None),
        (["gzip;q=-1"], None),
        (["gzip;q=nan"], None),
        ([",, ;q=1,"], None),
    ],
)
def test_the_coding_with_the_higher_weight_is_taken(accepted: list[str], coding: str | None) -> None:
    assert coding_of(accepted) == coding


@pytest.mark.parametrize(
    ("accepted", "is_json"),
    [
        ([], False),
        (["application/json"], True),
        (["Application/JSON; charset=utf-8"], True),
        (["text/html, application/json;q=0.1"], True),
        (["text/html", "application/json"], True),
        (["application/json;q=0"], False),
        (["application/json;v=1;q=0.0"], False),
        (["application/json-seq"], False),
        (["x-application/json"], False),
        (["text/plain;a=application/json"], False),
        (["*/*"], False),
        (["application/*"], False),
    ],
)
def test_json_is_taken_where_it_is_named(accepted: list[str], is_json: bool) -> None:
    assert takes_json(accepted) == is_json


@pytest.mark.parametrize(
    ("header", "size", "coding"),
    [
        (b"deflate;q=0.2, gzip;q=0.1", COMPRESSED_FROM_BYTES, "deflate"),
        (b"deflate, gzip", COMPRESSED_FROM_BYTES, "gzip"),
        (b"gzip", COMPRESSED_FROM_BYTES - 1, None),
        (b"gzip;q=0", COMPRESSED_FROM_BYTES, None),
        (b"xgzip", COMPRESSED_FROM_BYTES, None),
        (b"gzip", 3 * 2**20, "gzip"),
    ],
)
async def test_an_answer_has_the_coding_that_was_chosen(header: bytes, size: int, coding: str | None) -> None:
    async def handler(request: Request) -> web.Response:
        return compressed(request, bytes_answer(b"a" * size, "application/json"))

    async with served(route("GET", "/x", handler)) as front:
        status, headers, body = parts_of(await front.asked("GET", "/x", [b"Accept-Encoding: " + header]))
    assert (status, headers.get("content-encoding")) == (200, coding)
    assert (body if coding is None else zlib.decompress(body, 47)) == b"a" * size
