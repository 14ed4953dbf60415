"""Triton's index is asked once for all who ask at a time, and nobody gets an answer older than the question."""

import asyncio

import pytest

from adapter.errors import ServerUnavailable
from adapter.lifecycle.looks import Looks
from tests.fakes.world import World, neighbours

pytestmark = pytest.mark.looptime


@pytest.fixture
def looks(world: World) -> Looks:
    return Looks(neighbours(world).server)


async def test_who_asks_at_a_time_shares_one_look(looks: Looks, world: World) -> None:
    await asyncio.gather(*(looks.rows() for _ in range(100)))

    assert world.trace == ["index"]


async def test_who_comes_during_a_look_gets_the_next_one_and_shares_it(looks: Looks, world: World) -> None:
    world.hold("index")
    first = asyncio.create_task(looks.rows())
    await world.until_held("index")
    later = [asyncio.create_task(looks.rows()) for _ in range(100)]
    await asyncio.sleep(1)
    assert world.trace == ["index"]

    world.let_go("index")
    await asyncio.gather(first, *later)

    assert world.trace == ["index", "index"]


async def test_one_who_goes_leaves_the_look_to_the_others(looks: Looks, world: World) -> None:
    world.hold("index")
    gone, stays = (asyncio.create_task(looks.rows()) for _ in range(2))
    await world.until_held("index")
    gone.cancel()
    await asyncio.wait({gone})
    world.let_go("index")

    await stays
    assert world.trace == ["index"]


@pytest.mark.parametrize("is_under_way", [True, False])
async def test_the_last_to_go_ends_the_look_and_the_next_one_is_a_new_one(looks: Looks, world: World, *, is_under_way: bool) -> None:
    world.hold("index")
    asked = asyncio.create_task(looks.rows())
    if is_under_way:
        await world.until_held("index")
    else:
        await asyncio.sleep(0)
    asked.cancel()
    await asyncio.wait({asked})
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "look"]

    world.let_go("index")
    await looks.rows()
    assert world.trace[-1:] == ["index"]


async def test_a_failure_is_told_to_all_who_share_it_and_to_nobody_else(looks: Looks, world: World) -> None:
    world.fail("index", ServerUnavailable("Triton went away"))

    told = await asyncio.gather(*(looks.rows() for _ in range(3)), return_exceptions=True)

    assert [str(error) for error in told] == ["Triton went away"] * 3
    await looks.rows()
