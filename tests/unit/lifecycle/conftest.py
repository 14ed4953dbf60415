"""A lifecycle over a world in memory, in virtual time."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.model import RESERVED_IDS
from adapter.settings import read_group
from adapter.settings.capacity import CapacitySettings
from tests.fakes.world import World, ports


@pytest.fixture
def capacity() -> CapacitySettings:
    return read_group(
        CapacitySettings,
        {
            "CONTAINER_MEM_REQ_BYTES": "1280MiB",
            "LOADING_CONCURRENCY": "2",
            "LOADTIME_TIMEOUT": "90000",
            "LIMIT_PER_MODEL_CONCURRENCY": "4",
        },
    )


@pytest.fixture
def world() -> World:
    world = World()
    world.add("models/a")
    return world


@pytest.fixture
async def make(world: World, capacity: CapacitySettings) -> AsyncIterator[Callable[[], RuntimeLifecycle]]:
    """A new adapter process over the same world."""
    made = []

    def make_one() -> RuntimeLifecycle:
        made.append(RuntimeLifecycle(ports=ports(world), capacity=capacity, unload_timeout_seconds=170, reserved_ids=RESERVED_IDS))
        return made[-1]

    yield make_one
    for lifecycle in made:
        await lifecycle.close()


@pytest.fixture
async def lifecycle(make: Callable[[], RuntimeLifecycle]) -> RuntimeLifecycle:
    """One that has found nothing at its start."""
    lifecycle = make()
    lifecycle.start()
    return lifecycle
