"""Of a compressed body nothing is dropped: all members of gzip count, and what is none is refused."""

from __future__ import annotations

import gzip
import hashlib
import zlib

import pytest
from aiohttp import web

from adapter.fronts.answers import json_answer
from adapter.fronts.bodies import MOST_MEMBERS
from adapter.fronts.edge import Request
from tests.unit.fronts.rigs import parts_of, route, served

LIMIT = 200_000
LONG = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(6000))
"""No shorter when it is compressed, and several pieces of a connection."""


async def told(request: Request) -> web.Response:
    body = await request.body()
    return json_answer(f"{len(body)} {hashlib.sha256(body).hexdigest()}")


async def status_and_text(body: bytes, encoding: str) -> tuple[int, str]:
    async with served(route("POST", "/x", told), HTTP_MAX_BODY_BYTES=str(LIMIT)) as front:
        answer = await front.asked("POST", "/x", [b"Content-Encoding: " + encoding.encode()], body)
    status, _, text = parts_of(answer)
    return status, text.decode()


@pytest.mark.parametrize(
    ("body", "unpacked", "encoding"),
    [
        pytest.param(gzip.compress(b"one"), b"one", "gzip", id="one member"),
        pytest.param(gzip.compress(b'{"a": ') + gzip.compress(b"1}"), b'{"a": 1}', "gzip", id="two members"),
        pytest.param(
            gzip.compress(LONG[:7]) + gzip.compress(LONG[7:150_000]) + gzip.compress(LONG[150_000:]),
            LONG,
            "gzip",
            id="three members in several pieces",
        ),
        pytest.param(gzip.compress(b"") * (MOST_MEMBERS - 1) + gzip.compress(b"end"), b"end", "gzip", id="empty members"),
        pytest.param(gzip.compress(LONG[:50]) * (LIMIT // 50), LONG[:50] * (LIMIT // 50), "gzip", id="as long as it may be"),
        pytest.param(zlib.compress(LONG), LONG, "deflate", id="deflate"),
    ],
)
async def test_a_body_is_all_that_was_compressed(body: bytes, unpacked: bytes, encoding: str) -> None:
    assert await status_and_text(body, encoding) == (200, f'"{len(unpacked)} {hashlib.sha256(unpacked).hexdigest()}"')


@pytest.mark.parametrize(
    ("body", "encoding"),
    [
        pytest.param(gzip.compress(b"one") + b"garbage", "gzip", id="garbage"),
        pytest.param(gzip.compress(b"one") + b"\0", "gzip", id="zeros"),
        pytest.param(gzip.compress(b"") * (MOST_MEMBERS + 1), "gzip", id="too many members"),
        pytest.param(gzip.compress(b"one") + gzip.compress(b"two")[:-3], "gzip", id="a member cut short"),
        pytest.param(gzip.compress(b"one") + b"\x1f", "gzip", id="a byte of a member"),
        pytest.param(gzip.compress(LONG) + zlib.compress(b"two"), "gzip", id="another stream"),
        pytest.param(zlib.compress(b"one") + b"garbage", "deflate", id="garbage of deflate"),
        pytest.param(zlib.compress(b"one") + zlib.compress(b"two"), "deflate", id="two streams of deflate"),
        pytest.param(zlib.compress(LONG) + b"g", "deflate", id="a byte of deflate"),
    ],
)
async def test_bytes_behind_the_end_are_400(body: bytes, encoding: str) -> None:
    status, text = await status_and_text(body, encoding)
    assert status == 400, text
    assert f"the body is no {encoding}: " in text


async def test_all_members_together_have_one_bound() -> None:
    assert (await status_and_text(gzip.compress(bytes(LIMIT)) + gzip.compress(b"a"), "gzip"))[0] == 413
    assert (await status_and_text(gzip.compress(bytes(LIMIT)) + gzip.compress(b""), "gzip"))[0] == 200
    assert (await status_and_text(gzip.compress(bytes(1000)) * (LIMIT // 1000 + 1), "gzip"))[0] == 413
