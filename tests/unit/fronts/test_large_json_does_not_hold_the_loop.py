"""While a large body is made a request, the event loop has other requests; and what is parsed is as with a small one."""

from __future__ import annotations

import asyncio
import time

from aiohttp import web

from adapter.fronts.answers import json_answer
from adapter.fronts.bodies import FREE_BYTES
from adapter.fronts.edge import Request
from adapter.fronts.v2.requests import head_of, meant
from tests.messages import Info, info_of, tensors_of
from tests.unit.fronts.rigs import parts_of, route, served

MOST_SECONDS = 0.05
"""In a thread these bodies took 0.2 s and more; copies of what comes of them take a part of this bound."""

INFO = info_of("m", [Info(name="x", datatype="INT16", shape=[-1])])


def a_body(count: int) -> bytes:
    return b'{"id":"7","inputs":[{"name":"x","datatype":"INT16","shape":[%d],"data":[%s]}]}' % (count, b"1," * (count - 1) + b"1")


async def handler(request: Request) -> web.Response:
    asked = await request.read_by(meant, "m", "", head_of(None), None)
    (tensor,) = tensors_of(asked.request)
    return json_answer([asked.request.id, tensor.name, len(tensor.data), tensor.data == b"\1\0" * tensor.shape[0]])


async def count(request: Request) -> web.Response:
    asked = await request.read_by(meant, "m", "", 0, INFO, head=0)
    return json_answer(len(asked.wire))


async def longest_hold(work: asyncio.Task[bytes]) -> float:
    """Seconds for which the loop did nothing else; what other processes took does not count."""
    longest = 0.0
    while not work.done():
        before = time.monotonic(), time.process_time()
        await asyncio.sleep(0)
        longest = max(longest, min(time.monotonic() - before[0], time.process_time() - before[1]))
    return longest


async def test_the_loop_goes_on() -> None:
    async with served(route("POST", "/x", handler), HTTP_BODIES_BYTES="1Gi") as front:
        for count in (10, FREE_BYTES // 2, 4_000_000):
            asking = asyncio.create_task(front.asked("POST", "/x", body=a_body(count)))
            held = await longest_hold(asking)
            status, _, text = parts_of(await asking)
            assert (status, text) == (200, b'["7","x",%d,true]' % (2 * count))
        await front.edge.budget.parser.close()
    assert held < MOST_SECONDS


async def test_the_loop_goes_on_beside_binary_data() -> None:
    async with served(route("POST", "/x", count), HTTP_BODIES_BYTES="1Gi") as front:
        asking = asyncio.create_task(front.asked("POST", "/x", body=bytes(48 * 2**20)))
        held = await longest_hold(asking)
        status, _, text = parts_of(await asking)
    assert (status, int(text) > 48 * 2**20) == (200, True)
    assert held < MOST_SECONDS


async def test_what_is_wrong_in_a_large_body_is_told_as_of_a_small_one() -> None:
    async with served(route("POST", "/x", handler), HTTP_BODIES_BYTES="64Mi") as front:
        for count in (10, FREE_BYTES):
            status, _, text = parts_of(await front.asked("POST", "/x", body=a_body(count).replace(b"INT16", b"INT17")))
            assert (status, text) == (400, b"{\"error\":\"input 'x': there is no datatype 'INT17'\"}")
        status, _, text = parts_of(await front.asked("POST", "/x", body=a_body(12_000_000)))
        assert (status, b"parsing the body takes more memory than HTTP_BODIES_BYTES gives" in text) == (413, True)
        await front.edge.budget.parser.close()
