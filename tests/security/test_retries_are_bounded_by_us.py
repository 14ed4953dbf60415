"""What a server can do to whoever repeats: ask for endless pauses, fail for ever, give a byte now and then. The load's time is ours."""

from __future__ import annotations

import asyncio
import re
import time

import pytest

from adapter.errors import SourceUnavailable
from adapter.storage.store import Store
from adapter.storage.stores.tries import FIRST_PAUSE_SECONDS
from adapter.waits import Waits
from tests.builders import a_spec
from tests.contract.bucket.model_rigs import make_store
from tests.fakes.hell import Hell, answering, honest, in_turn, trickled_headers
from tests.security.chosen import long_but

BUDGET_SECONDS = 2.5
LATE_SECONDS = 5.0
"""After the load's time, for a busy machine; far less than any pause that is asked for here."""
CONTENT = bytes(range(200))
VERSION = {"ETag": '"v"'}


@pytest.fixture
def hell():
    """A web server that can be made to answer anything."""
    with Hell(honest(CONTENT, VERSION)) as server:
        yield server


@pytest.fixture
def store(tmp_path, volume, hell):
    """A store over that server."""
    made = make_store(tmp_path, volume, {"type": "http", "url": hell.url}, threads=16)
    yield made
    made.close()


async def refusal(store: Store, seconds: float = BUDGET_SECONDS) -> str:
    """How a load of so many seconds ends, which it does in time."""
    begun = time.monotonic()
    waits = Waits(time.monotonic, begun + seconds)
    with pytest.raises(SourceUnavailable) as raised:
        model = await store.open(a_spec("file", storage_key="k"), waits)
        await model.fetch(model.listing.files)
    assert time.monotonic() - begun < seconds + LATE_SECONDS
    return raised.value.text


def away(retry_after: str | None = None):
    return answering(503, {"Content-Length": 0} | ({} if retry_after is None else {"Retry-After": retry_after}))


@pytest.mark.parametrize("asked", ["1000000000", "9" * 5000, "000000000000000000000000031622400", "3"])
async def test_a_pause_that_does_not_fit_is_refused_at_once(store, hell, asked):
    """However long; nothing overflows."""
    hell.behaviour = away(asked)
    begun = time.monotonic()
    text = await refusal(store, 2.0)
    assert time.monotonic() - begun < LATE_SECONDS
    assert "(HTTP 503); it asks for a pause of " in text and "left; tried once in " in text
    assert len(text) < 300


NO_PAUSES = ("-5", "nan", "inf", "1e9", "0x10", "1_000", "Fri, 31 Dec 9999 23:59:59 GMT", "Thu, 01 Jan 1970 00:00:00 GMT", "", "0", "soon")


@pytest.mark.parametrize("asked", long_but(NO_PAUSES, "-5", "1e9", "Fri, 31 Dec 9999 23:59:59 GMT"))
async def test_what_is_no_number_of_seconds_changes_nothing(store, hell, asked):
    """Pauses of our own, as without the header; no storm of requests, and no time of the server's."""
    hell.behaviour = away(asked)
    assert re.search("tried [3-5] times in ", await refusal(store))  # at 0, 0.1, 0.3, 0.7, 1.5 s: jitter halves the pauses
    assert len(hell.requests) <= 5


async def test_not_even_the_second_try_comes_at_once(store, hell):
    """No other load has proved yet that the endpoint is in trouble."""
    hell.behaviour = in_turn(away(), honest(CONTENT, VERSION))
    begun = time.monotonic()
    assert await refusal_or_listing(store) == "listed"
    assert time.monotonic() - begun >= FIRST_PAUSE_SECONDS / 2, "jitter halves the pause at most"


async def test_a_probe_that_is_given_headers_for_ever_lets_the_others_go(store, hell, monkeypatch):
    """Another load of the same endpoint does not wait for it longer than for a try."""
    monkeypatch.setattr("adapter.storage.stores.tries.TRY_SECONDS", 0.5)
    hell.behaviour = in_turn(away(), trickled_headers(0.05), honest(CONTENT, VERSION))
    slow = asyncio.create_task(refusal_or_listing(store))
    while len(hell.requests) < 2:
        await asyncio.sleep(0.01)
    assert await refusal_or_listing(store) == "listed"
    assert await slow == "listed"


async def refusal_or_listing(store):
    try:
        await store.open(a_spec("file", storage_key="k"), Waits(time.monotonic, time.monotonic() + 20))
    except SourceUnavailable as error:
        return error.text
    return "listed"
