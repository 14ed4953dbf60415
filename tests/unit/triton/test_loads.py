"""Loads that Triton has cannot be taken back: they keep their slot, and can be waited for."""

from __future__ import annotations

import asyncio
import logging
import random

import pytest

from adapter.triton.loads import SentLoads

pytestmark = pytest.mark.looptime


class Triton:
    """Loads for some seconds, counts how many at once."""

    def __init__(self, seconds: float = 10.0) -> None:
        self.seconds = seconds
        self.now = 0
        self.most = 0
        self.trace: list[str] = []
        self.failure: Exception | None = None

    async def load(self, name: str) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        self.trace.append(f"begin {name}")
        try:
            await asyncio.sleep(self.seconds)
            self.trace.append(f"end {name}")
            if self.failure is not None:
                raise self.failure
        finally:
            self.now -= 1


@pytest.fixture
def triton() -> Triton:
    return Triton()


def loads_of(triton: Triton, slots: int = 1) -> SentLoads:
    return SentLoads(load=triton.load, slots=slots)


async def load(loads: SentLoads, name: str) -> None:
    """As the lifecycle does it."""
    async with loads.slot():
        await loads.send(name)


async def cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def test_slots_bound_the_loads(triton: Triton) -> None:
    """The third waits for one of two."""
    loads = loads_of(triton, slots=2)

    await asyncio.gather(*(load(loads, name) for name in "abcde"))

    assert triton.most == 2
    assert asyncio.get_running_loop().time() == 30


async def test_first_come_first_served(triton: Triton) -> None:
    """No load is overtaken."""
    loads = loads_of(triton)

    await asyncio.gather(*(load(loads, name) for name in "abc"))

    assert triton.trace == ["begin a", "end a", "begin b", "end b", "begin c", "end c"]


async def test_a_queued_load_is_cancelled_at_once(triton: Triton) -> None:
    """Triton never hears of it, and its slot goes to the next."""
    loads = loads_of(triton)
    a, b, c = (asyncio.create_task(load(loads, name)) for name in "abc")
    await asyncio.sleep(1)
    await cancel(b)

    assert asyncio.get_running_loop().time() == 1
    await asyncio.gather(a, c)
    assert "begin b" not in triton.trace


async def test_a_sent_load_goes_on_and_keeps_its_slot(triton: Triton) -> None:
    """The next one begins when it ends."""
    loads = loads_of(triton)
    a = asyncio.create_task(load(loads, "a"))
    await asyncio.sleep(1)
    b = asyncio.create_task(load(loads, "b"))
    await cancel(a)
    assert asyncio.get_running_loop().time() == 1
    assert loads.names() == {"a"}

    await b

    assert triton.trace == ["begin a", "end a", "begin b", "end b"]
    assert loads.names() == set()


async def test_a_given_up_load_can_be_waited_for(triton: Triton) -> None:
    """By the unload that follows."""
    loads = loads_of(triton)
    a = asyncio.create_task(load(loads, "a"))
    await asyncio.sleep(1)
    await cancel(a)
    assert loads.seconds_since_sent("a") == 1

    await loads.ended("a")

    assert asyncio.get_running_loop().time() == 10
    assert loads.seconds_since_sent("a") is None
    await loads.ended("a")
    await loads.ended("never sent")


async def test_the_wait_can_be_cancelled_and_the_load_cannot(triton: Triton) -> None:
    """An unload whose bound is over takes nothing with it."""
    loads = loads_of(triton)
    a = asyncio.create_task(load(loads, "a"))
    await asyncio.sleep(1)
    await cancel(asyncio.create_task(loads.ended("a")))

    await a

    assert triton.trace == ["begin a", "end a"]


async def test_a_second_load_of_the_model_follows_the_first(triton: Triton) -> None:
    """Also when the first was given up."""
    loads = loads_of(triton, slots=2)
    a = asyncio.create_task(load(loads, "a"))
    await asyncio.sleep(1)
    await cancel(a)

    await load(loads, "a")

    assert triton.trace == ["begin a", "end a", "begin a", "end a"]
    assert triton.most == 1


async def test_a_failure_reaches_the_caller_and_frees_the_slot(triton: Triton) -> None:
    """As itself."""
    triton.failure = ValueError("no")
    loads = loads_of(triton)

    for _ in range(3):
        with pytest.raises(ValueError, match="no"):
            await load(loads, "a")


async def test_the_end_of_a_given_up_load_is_logged(triton: Triton, caplog: pytest.LogCaptureFixture) -> None:
    """Also its failure, which nobody else hears."""
    caplog.set_level(logging.INFO)
    loads = loads_of(triton, slots=2)
    a = asyncio.create_task(load(loads, "a"))
    await asyncio.sleep(1)
    await cancel(a)
    await loads.ended("a")
    triton.failure = ValueError("no memory")
    b = asyncio.create_task(load(loads, "b"))
    await asyncio.sleep(1)
    await cancel(b)
    await loads.ended("b")

    assert [record.getMessage() for record in caplog.records] == [
        "The load of model a, given up by its caller, succeeded after 10.0 s in Triton",
        "The load of model b, given up by its caller, failed: no memory after 10.0 s in Triton",
    ]


async def test_a_load_that_ends_before_its_slot_is_left(triton: Triton) -> None:
    """The caller lingers in the slot after its cancel: the slot comes back once, when both are gone."""
    loads = loads_of(triton)

    async def linger() -> None:
        async with loads.slot():
            try:
                await loads.send("a")
            finally:
                await asyncio.sleep(20)

    a = asyncio.create_task(linger())
    await asyncio.sleep(1)
    a.cancel()
    await asyncio.wait({a})

    await asyncio.gather(load(loads, "b"), load(loads, "c"))

    assert triton.most == 1
    assert asyncio.get_running_loop().time() == 41


@pytest.mark.parametrize("seed", range(20))
async def test_a_storm_of_cancels_never_exceeds_the_slots(seed: int) -> None:
    """ModelMesh cancels dozens of loads under churn; afterwards every slot is free again."""
    chance = random.Random(seed)
    triton = Triton(seconds=1.0)
    loads = loads_of(triton, slots=3)

    async def one(name: str) -> None:
        await asyncio.sleep(chance.uniform(0, 10))
        task = asyncio.create_task(load(loads, name))
        await asyncio.sleep(chance.uniform(0, 4))
        task.cancel()
        await asyncio.wait({task})

    await asyncio.gather(*(one(f"m{number}") for number in range(60)))
    for name in loads.names():
        await loads.ended(name)
    assert triton.most == 3
    began_at = asyncio.get_running_loop().time()
    await asyncio.gather(*(load(loads, name) for name in "abc"))

    assert asyncio.get_running_loop().time() == pytest.approx(began_at + 1.0)


async def test_close_gives_up(triton: Triton) -> None:
    """At the end of the process nothing is waited for."""
    loads = loads_of(triton)
    a = asyncio.create_task(load(loads, "a"))
    await asyncio.sleep(1)
    await cancel(a)

    await loads.close()

    assert asyncio.all_tasks() == {asyncio.current_task()}
    await loads.close()
