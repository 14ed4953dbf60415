"""A restriction is for whatever group it names; health has no bound of requests, and no more than that."""

from __future__ import annotations

import pytest
from aiohttp import web

from adapter.fronts.answers import json_answer
from adapter.fronts.edge import Request, Route
from tests.unit.fronts.rigs import parts_of, served


@pytest.mark.parametrize("is_draining", [False, True])
@pytest.mark.parametrize(("headers", "status"), [([], 403), ([b"X-Probe: no"], 403), ([b"X-Probe: s3cret"], 200)])
async def test_health_needs_the_header_also_at_the_end(headers: list[bytes], status: int, is_draining: bool) -> None:
    async def handler(_request: Request) -> web.Response:
        return json_answer({})

    ping = Route(method="GET", path="/ping", handler=handler, api="health")
    async with served(ping, restricted="health:X-Probe=s3cret") as front:
        front.edge.is_draining = is_draining
        assert parts_of(await front.asked("GET", "/ping", headers))[0] == status
