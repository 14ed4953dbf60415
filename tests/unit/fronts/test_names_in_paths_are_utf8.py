"""A name in a path is the text that was percent-encoded, whatever its letters are; what is no UTF-8 names nothing."""

from __future__ import annotations

from urllib.parse import quote

import orjson
import pytest
from aiohttp import web

from adapter.fronts.answers import json_answer
from adapter.fronts.edge import Request
from tests.unit.fronts.rigs import parts_of, route, served


async def named(request: Request) -> web.Response:
    return json_answer(request.name)


@pytest.mark.parametrize(
    "name", ["a", "a b", "\ufffd", "a\ufffdb", "模型", "😀", "100%", "%41", "%FF", "%2F", "a/b", "a?b", "{a}", "\u0301"]
)
async def test_a_name_is_what_was_encoded(name: str) -> None:
    async with served(route("GET", "/m/{name}/x", named)) as front:
        status, _, body = parts_of(await front.asked("GET", f"/m/{quote(name, safe='')}/x?q=%FF"))
    assert (status, orjson.loads(body)) == (200, name)


@pytest.mark.parametrize("path", ["%FF", "a%C3", "%ED%A0%80", "%C3%C3%A9", "%c0%af", "%EF%BF"])
async def test_what_is_no_utf8_is_400(path: str) -> None:
    async with served(route("GET", "/m/{name}/x", named)) as front:
        status, _, body = parts_of(await front.asked("GET", f"/m/{path}/x"))
    assert (status, orjson.loads(body)) == (400, {"error": "the name in the path is no UTF-8"})
