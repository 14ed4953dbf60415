"""
Lanes to a neighbour: how many threads of a pool may wait for one endpoint, or read one claim, at a time.

An endpoint that is silent holds each thread that asks it until the caller's time is up. So a pool has twice as many threads
as one endpoint may have: what one that is dead cannot take is left to the others. All of this runs on the event loop.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from typing import TypeVar

from adapter.waits import Waits
from adapter.workers import Stop, Workers

T = TypeVar("T")
Place = asyncio.Future[None]
"""A lane, or a place among those who wait for one: done as soon as there is a lane."""


class Lanes:
    """So many lanes; who finds none waits, in the order of arrival."""

    def __init__(self, count: int) -> None:
        self._free = count
        self._waiting: deque[Place] = deque()
        self._users = 0

    @property
    def is_idle(self) -> bool:
        """Nobody has a lane or waits for one."""
        return not self._users

    def ask(self) -> Place:
        """A lane or a place; whoever has it calls `leave` once, however the wait for it ends."""
        place: Place = asyncio.get_running_loop().create_future()
        self._users += 1
        if self._free:
            self._free -= 1
            place.set_result(None)
        else:
            self._waiting.append(place)
        return place

    def leave(self, place: Place) -> None:
        """Give up the lane, to whoever has waited longest, or the place."""
        self._users -= 1
        with suppress(ValueError):
            self._waiting.remove(place)
        if not place.done():
            place.cancel()
        if place.cancelled():
            return
        while self._waiting:
            following = self._waiting.popleft()
            if not following.done():  # else its owner was cancelled, and is about to leave
                following.set_result(None)
                return
        self._free += 1


class EndpointThreads:
    """Threads that wait for stores, of which one endpoint may have `lanes`, and all together twice as many."""

    def __init__(self, name: str, lanes: int, purpose: str = "to ask storage with") -> None:
        """
        Args:
            name: of the threads.
            lanes: for each endpoint.
            purpose: completes `a free thread …`.

        Raises:
            StartError: the process cannot have so many threads.
        """
        self.workers = Workers(name, 2 * lanes)
        self._lanes = lanes
        self._purpose = purpose
        self._of: dict[str, Lanes] = {}

    async def run(self, endpoint: str, waits: Waits, work: Callable[[Stop], T]) -> T:
        """
        Run the work in a thread that may wait for this endpoint. Until a lane and a thread are free, that is what is waited for.

        Cancelled, it ends when the thread has ended, as `Workers.run`. Raises whatever `work` raises.
        """
        lanes = self._of.setdefault(endpoint, Lanes(self._lanes))
        place = lanes.ask()
        try:
            with ExitStack() as queue:
                wait = queue.enter_context(waits.on(f"a free lane to {endpoint} (all {self._lanes} wait for it)"))
                await place
                wait.what = f"a free thread {self._purpose} (all {self.workers.threads} wait for stores)"

                def begun(stop: Stop) -> T:
                    queue.close()
                    return work(stop)

                return await self.workers.run(begun)
        finally:
            lanes.leave(place)
            if lanes.is_idle:
                self._of.pop(endpoint, None)

    def close(self) -> None:
        """Take no more work; does not wait for what runs."""
        self.workers.close()
