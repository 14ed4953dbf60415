"""Slots: never too many, none is lost, callers first."""

from __future__ import annotations

import asyncio
import random

import pytest

from adapter.triton.slots import Slot, Slots

pytestmark = pytest.mark.looptime


async def served(slots: Slots, waiting: dict[str, asyncio.Task[Slot]]) -> list[str]:
    """In which order they get a slot, when each gives it back after a second."""
    order: list[str] = []

    async def one(name: str, task: asyncio.Task[Slot]) -> None:
        slot = await task
        order.append(name)
        await asyncio.sleep(1)
        slots.give_back(slot)

    await asyncio.gather(*(one(name, task) for name, task in waiting.items()))
    return order


async def test_callers_come_before_those_that_yield() -> None:
    """Whenever they came; first come, first served among equals."""
    slots = Slots(1)
    first = await slots.take("holder")
    waiting: dict[str, asyncio.Task[Slot]] = {}
    for name, yields in (("r1", True), ("c1", False), ("r2", True), ("c2", False)):
        waiting[name] = asyncio.create_task(slots.take(name, yields=yields))
        await asyncio.sleep(0)
    slots.give_back(first)

    assert await served(slots, waiting) == ["c1", "c2", "r1", "r2"]


async def test_nobody_overtakes_one_that_is_served() -> None:
    """A slot that was handed over is not free for who comes in that moment."""
    slots = Slots(1)
    first = await slots.take("holder")
    restore = asyncio.create_task(slots.take("restore", yields=True))
    await asyncio.sleep(0)
    slots.give_back(first)
    call = asyncio.create_task(slots.take("call"))
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert restore.done()
    assert not call.done()
    slots.give_back(restore.result())
    slots.give_back(await call)


async def test_a_waiter_that_is_cancelled_when_it_is_served_passes_the_slot_on() -> None:
    """In the same moment, before it has run."""
    slots = Slots(1)
    first = await slots.take("holder")
    one, two = (asyncio.create_task(slots.take(name)) for name in ("one", "two"))
    await asyncio.sleep(0)
    slots.give_back(first)
    one.cancel()

    slot = await two
    assert one.cancelled()
    assert slot.model_id == "two"


async def test_it_is_known_who_holds_them() -> None:
    """The oldest first; nobody is named while one is free."""
    slots = Slots(2)
    one = await slots.take("one")
    assert slots.holders() is None
    await asyncio.sleep(3)
    two = await slots.take("two", yields=True)

    assert slots.holders() == [one, two]
    assert [slot.since for slot in (one, two)] == [0, 3]
    slots.give_back(one)
    assert slots.holders() is None


@pytest.mark.parametrize("seed", range(50))
async def test_random_histories_lose_no_slot(seed: int) -> None:
    """Takers of both classes come, are cancelled in any moment, and give back; in the end all slots are there."""
    chance = random.Random(seed)
    count = chance.randint(1, 4)
    slots = Slots(count)
    holding = 0

    async def one(number: int) -> None:
        nonlocal holding
        await asyncio.sleep(chance.randrange(20))
        slot = await slots.take(f"m{number}", yields=chance.random() < 0.5)
        holding += 1
        assert holding <= count
        try:
            await asyncio.sleep(chance.choice([0, 1, 2]))
        finally:
            holding -= 1
            slots.give_back(slot)

    async def cancelled_at_times(number: int) -> None:
        task = asyncio.create_task(one(number))
        if chance.random() < 0.6:
            await asyncio.sleep(chance.randrange(25))
            for _ in range(chance.randrange(4)):
                await asyncio.sleep(0)
            task.cancel()
        await asyncio.wait({task})
        if not task.cancelled():
            task.result()

    await asyncio.gather(*(cancelled_at_times(number) for number in range(80)))

    assert holding == 0
    assert slots.holders() is None
    async with asyncio.timeout(1):
        last = [await slots.take(f"last {number}") for number in range(count)]
    assert slots.holders() == last
