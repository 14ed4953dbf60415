"""Loads share what is known of an endpoint: one of them tries, an answer wakes all, and who comes later does not wait in vain."""

from __future__ import annotations

import asyncio
import itertools
from dataclasses import dataclass, field

import pytest

from adapter.errors import SourceUnavailable
from adapter.storage.bucket import Page
from adapter.storage.stores.tries import PROBE_SECONDS, RetriedBucket, endpoints
from adapter.waits import Waits

pytestmark = pytest.mark.looptime
BUDGET_SECONDS = 30.0


@dataclass
class Store:
    """Refuses, or is silent, or answers; a bucket of it."""

    behaviour: str = "refuses"
    kind: str = "s3"
    place: str = "s3://b"
    words: str = "bucket 'b' at host:1"
    endpoint: str = "host:1"
    asked: list[float] = field(default_factory=list)
    known = None

    async def list_page(self, prefix, **_):
        self.asked.append(asyncio.get_running_loop().time())
        await asyncio.sleep({"is silent": 13, "is slow": 8}.get(self.behaviour, 0.01))
        if self.behaviour not in ("is slow", "answers") and prefix != "well":
            raise SourceUnavailable(f"{self.words} cannot be reached: refused", cause="refused")
        return Page(objects=())

    async def load(self, prefix="m", seconds=BUDGET_SECONDS):
        """How a load ends, and after how long."""
        self.known = self.known or endpoints()
        clock = asyncio.get_running_loop().time
        begun = clock()
        bucket = RetriedBucket(self, Waits(clock, begun + seconds), known=self.known, reader="r", jitter=lambda: 0.0)
        try:
            await bucket.list_page(prefix)
        except SourceUnavailable as error:
            return error.text, clock() - begun
        return "listed", clock() - begun


@pytest.mark.parametrize("behaviour", ["refuses", "is silent"])
async def test_a_load_uses_its_budget_and_later_ones_are_told_soon(behaviour):
    """With the last cause, the number of tries, and for how long the endpoint has been away. Loads that wait share one probe."""
    store = Store(behaviour)
    text, seconds = await store.load()
    assert BUDGET_SECONDS - 10 < seconds <= BUDGET_SECONDS
    assert "; tried " in text and "away" not in text
    asked = len(store.asked)
    later = await asyncio.gather(*(store.load() for _ in range(10)))
    assert len(store.asked) == asked + 1
    for text, seconds in later:
        assert seconds <= PROBE_SECONDS
        assert "; tried once in " in text and "; host:1 has been away for " in text


async def test_pauses_between_probes_grow():
    """For all loads together."""
    store = Store()
    await asyncio.gather(*(store.load() for _ in range(10)))
    probes = store.asked[10:]
    pauses = [round(after - before, 1) for before, after in itertools.pairwise(probes)]
    assert pauses[1:] == sorted(pauses[1:]) and 4 < pauses[-1] <= 5.1
    assert len(probes) < 15


async def test_the_first_answer_wakes_all():
    """Also where the endpoint was away."""
    store = Store()
    await store.load()
    loads = [asyncio.create_task(store.load()) for _ in range(2)]
    store.behaviour = "answers"
    assert [text for text, _ in await asyncio.gather(*loads)] == ["listed"] * 2
    assert (await store.load())[0] == "listed"
