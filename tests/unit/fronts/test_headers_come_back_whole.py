"""A header that an answer repeats is the request's own: all its values, or none where they cannot be written."""

from __future__ import annotations

import pytest
from aiohttp import web

from adapter.fronts.answers import json_answer
from adapter.fronts.edge import Request
from tests.unit.fronts.rigs import parts_of, route, served


async def handler(_request: Request) -> web.Response:
    return json_answer({})


@pytest.mark.parametrize(
    ("values", "echoed"),
    [
        ([], None),
        ([b"a=1"], "a=1"),
        ([b"a=1", b"b=2", b"c"], "a=1, b=2, c"),
        (["é 模型".encode()], "é 模型"),
        ([b""], ""),
        ([b"caf\xe9"], None),
        ([b"a", b"\xff"], None),
        ([b"\xed\xa0\x80"], None),
    ],
)
async def test_all_values_come_back(values: list[bytes], echoed: str | None) -> None:
    async with served(route("GET", "/x", handler), echoed=("X-Custom",)) as front:
        for path, wanted in (("/x", 200), ("/nothing", 404)):
            status, headers, _ = parts_of(await front.asked("GET", path, [b"X-Custom: " + value for value in values]))
            assert (status, headers.get("x-custom")) == (wanted, echoed)
