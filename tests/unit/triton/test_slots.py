"""Slots and places: never too many, none is lost, callers first."""

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
    slots = Slots(1, 4)
    first = await slots.take("holder")
    waiting: dict[str, asyncio.Task[Slot]] = {}
    for name, yields in (("r1", True), ("c1", False), ("r2", True), ("c2", False)):
        waiting[name] = asyncio.create_task(slots.take(name, yields=yields))
        await asyncio.sleep(0)
    slots.give_back(first)

    assert await served(slots, waiting) == ["c1", "c2", "r1", "r2"]


async def test_nobody_overtakes_one_that_is_served() -> None:
    """A slot that was handed over is not free for who comes in that moment."""
    slots = Slots(1, 4)
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
    slots = Slots(1, 4)
    first = await slots.take("holder")
    one, two = (asyncio.create_task(slots.take(name)) for name in ("one", "two"))
    await asyncio.sleep(0)
    slots.give_back(first)
    one.cancel()

    slot = await two
    assert one.cancelled()
    assert slot.model_id == "two"


async def test_a_load_that_is_left_gives_its_slot_to_the_next() -> None:
    """At once, callers first, as long as there is a place."""
    slots = Slots(1, 2)
    first = await slots.take("first")
    restore = asyncio.create_task(slots.take("restore", yields=True))
    call = asyncio.create_task(slots.take("call"))
    await asyncio.sleep(0)
    slots.leave(first)

    second = await call
    slots.leave(second)
    await asyncio.sleep(10)
    assert not restore.done()
    slots.give_back(first)
    assert (await restore).model_id == "restore"
    slots.give_back(second)
    slots.give_back(restore.result())
    assert slots.queue() is None


async def test_a_place_that_comes_free_serves_as_many_as_it_can() -> None:
    """Several slots may have waited for one place each."""
    slots = Slots(2, 2)
    one, two = await slots.take("one"), await slots.take("two")
    three, four = (asyncio.create_task(slots.take(name)) for name in ("three", "four"))
    await asyncio.sleep(0)
    slots.leave(one)
    slots.leave(two)
    await asyncio.sleep(1)
    assert not three.done() and not four.done()

    slots.give_back(two)
    slots.give_back(one)

    assert [(await task).model_id for task in (three, four)] == ["three", "four"]


async def test_it_is_known_who_holds_them() -> None:
    """The oldest first; nobody is named while one is free. Those that nobody waits for come first: they are the cause."""
    slots = Slots(2, 3)
    one = await slots.take("one")
    assert slots.queue() is None
    await asyncio.sleep(3)
    two = await slots.take("two", yields=True)

    assert slots.queue() == "models one (3 s) and two (0 s) hold both loading slots"
    slots.leave(two)
    assert slots.queue() is None
    await asyncio.sleep(1)
    slots.leave(one)
    three = await slots.take("three")
    assert slots.queue() == (
        "the loads of models one (4 s), two (1 s) are still in Triton, though nobody waits for the end any more; "
        "the load of model three (0 s) is under way: Triton has no free load thread (TRITON_LOAD_THREADS is 3)"
    )
    slots.give_back(one)
    assert slots.queue() is None
    slots.give_back(two)
    slots.give_back(three)


@pytest.mark.parametrize("seed", range(100))
async def test_random_histories_lose_no_slot(seed: int) -> None:
    """Takers of both classes come, are cancelled in any moment, leave their load, and give back; in the end all slots are there."""
    chance = random.Random(seed)
    count = chance.randint(1, 4)
    places = chance.randint(1, 7)
    slots = Slots(count, places)
    holding = left = 0

    async def one(number: int) -> None:
        nonlocal holding, left
        await asyncio.sleep(chance.randrange(20))
        slot = await slots.take(f"m{number}", yields=chance.random() < 0.5)
        holding += 1
        assert holding <= count
        assert holding + left <= places
        try:
            await asyncio.sleep(chance.choice([0, 1, 2]))
        except asyncio.CancelledError:
            holding, left = holding - 1, left + 1
            slots.leave(slot)
            await asyncio.sleep(chance.choice([0, 1, 5]))
            left -= 1
        else:
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

    assert holding == left == 0
    assert slots.queue() is None
    async with asyncio.timeout(1):
        last = [await slots.take(f"last {number}") for number in range(min(count, places))]
    assert slots.queue() is not None
    for slot in last:
        slots.give_back(slot)
