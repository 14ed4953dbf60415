"""Lanes: so many for one endpoint, in order of arrival, and no count is left behind by whoever gives up."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from threading import Event

import pytest

from adapter.storage.lanes import EndpointThreads, Lanes
from adapter.storage.secret.endpoints import endpoint_of
from adapter.waits import Waits
from adapter.workers import Stop


async def waiter(lanes: Lanes, order: list[int], number: int) -> None:
    place = lanes.ask()
    try:
        await place
        order.append(number)
    finally:
        lanes.leave(place)


async def test_lanes_go_from_hand_to_hand_in_order() -> None:
    lanes, order = Lanes(1), list[int]()
    first = lanes.ask()
    waiters = [asyncio.create_task(waiter(lanes, order, number)) for number in range(5)]
    await asyncio.sleep(0)
    assert first.done() and order == []
    waiters[1].cancel()
    await asyncio.sleep(0)
    lanes.leave(first)
    await asyncio.gather(*waiters, return_exceptions=True)
    assert order == [0, 2, 3, 4]
    assert lanes.is_idle and lanes.ask().done()


@pytest.mark.parametrize("when", ["before it is granted", "just as it is granted", "together with the one before"])
async def test_a_cancelled_waiter_leaves_no_count_behind(when: str) -> None:
    lanes, order = Lanes(1), list[int]()
    first = lanes.ask()
    second, third = (asyncio.create_task(waiter(lanes, order, number)) for number in (2, 3))
    await asyncio.sleep(0)
    if when == "just as it is granted":
        lanes.leave(first)
        second.cancel()
    elif when == "before it is granted":
        second.cancel()
        await asyncio.sleep(0)
        lanes.leave(first)
    else:
        second.cancel()
        third.cancel()
        lanes.leave(first)
    await asyncio.gather(second, third, return_exceptions=True)
    assert order == ([] if when == "together with the one before" else [3])
    assert lanes.is_idle and lanes.ask().done() and not lanes.ask().done()


@pytest.fixture
async def threads() -> AsyncIterator[EndpointThreads]:
    """Two lanes for each endpoint, four threads."""
    made = EndpointThreads("ask", 2)
    yield made
    made.close()


async def test_one_endpoint_cannot_take_what_another_needs(threads: EndpointThreads) -> None:
    """Of nine calls two run; another endpoint's call runs at once."""
    release = Event()

    def hang(stop: Stop) -> None:
        while not release.wait(0.001):
            stop.check()

    waits = [Waits(time.monotonic) for _ in range(9)]
    dead = [asyncio.create_task(threads.run("dead:443", each, hang)) for each in waits]
    await asyncio.sleep(0)
    async with asyncio.timeout(20):
        assert await threads.run("well:443", Waits(time.monotonic), lambda _: "here") == "here"
        words = [each.words() for each in waits]
        assert sum("a free lane to dead:443 (all 2 wait for it)" in (word or "") for word in words) == 7
        for task in dead[:8]:
            task.cancel()
        await asyncio.gather(*dead[:8], return_exceptions=True)
        assert all(each.words() is None for each in waits[:8])
        release.set()
        await dead[8]
    assert threads._of == {}


CONFIGS = [
    ("s3", {"endpoint_url": "http://minio:9000"}, "minio:9000"),
    ("s3", {"endpoint_url": " minio.ns.svc "}, "minio.ns.svc:443"),
    ("s3", {"endpoint_url": "https://MINIO:443/"}, "minio:443"),
    ("s3", {"region": "eu-west-1"}, "s3 (eu-west-1)"),
    ("s3", {}, "s3"),
    ("http", {"url": "https://u:p@web/models?sig=x"}, "web:443"),
    ("http", {"url": "http://[::1"}, "http"),
    ("http", {"url": 7}, "http"),
    ("azure", {"account_name": "acc"}, "azure (acc)"),
    ("azure", {"connection_string": "AccountName=acc;AccountKey=secret=="}, "azure (acc)"),
    ("azure", {"connection_string": "BlobEndpoint=http://127.0.0.1:10000/acc?sig=secret;AccountKey=k"}, "127.0.0.1:10000"),
    ("azure", {"account_name": "a b\nc"}, "azure"),
]


@pytest.mark.parametrize(("kind", "values", "endpoint"), CONFIGS)
def test_an_endpoint_is_named_as_far_as_the_config_tells(kind: str, values: dict[str, object], endpoint: str) -> None:
    """Without credentials, and the same for two ways to write it."""
    assert endpoint_of(kind, values) == endpoint
