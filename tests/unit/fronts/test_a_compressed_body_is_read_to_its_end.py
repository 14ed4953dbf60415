"""Of a compressed body nothing is dropped: what comes behind its end is refused."""

from __future__ import annotations

import gzip
import hashlib
import zlib

import pytest
from aiohttp import web

from adapter.fronts.answers import json_answer
from adapter.fronts.edge import Request
from tests.unit.fronts.rigs import parts_of, route, served

LIMIT = 200_000
LONG = b"".join(hashlib.sha256(b"%d" % number).digest() for number in range(6000))
"""No shorter when it is compressed, and several pieces of a connection."""


async def told(request: Request) -> web.Response:
    return json_answer(await request.read_by(summary))


def summary(body: bytes) -> str:
    return f"{len(body)} {hashlib.sha256(body).hexdigest()}"


async def status_and_text(body: bytes, encoding: str) -> tuple[int, str]:
    async with served(route("POST", "/x", told), HTTP_MAX_BODY_BYTES=str(LIMIT)) as front:
        answer = await front.asked("POST", "/x", [b"Content-Encoding: " + encoding.encode()], body)
    status, _, text = parts_of(answer)
    return status, text.decode()


@pytest.mark.parametrize(
    ("body", "unpacked", "encoding"),
    [
        pytest.param(gzip.compress(b"one"), b"one", "gzip", id="one member"),
        pytest.param(gzip.compress(LONG), LONG, "gzip", id="several pieces"),
        pytest.param(gzip.compress(bytes(LIMIT)), bytes(LIMIT), "gzip", id="as long as it may be"),
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
        pytest.param(gzip.compress(b"one") + gzip.compress(b"two"), "gzip", id="two members"),
        pytest.param(gzip.compress(LONG)[:-3], "gzip", id="cut short"),
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


async def test_what_is_unpacked_has_a_bound() -> None:
    assert (await status_and_text(gzip.compress(bytes(LIMIT + 1)), "gzip"))[0] == 413
