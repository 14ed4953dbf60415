"""
Of all callers that want the same at one time, one has it done, and the others wait for that.

The work is a task of its own. A caller that is cancelled leaves it; the last one to leave cancels the work and waits for
its end. The work may wait as long as any of its callers may.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from adapter.errors import AdapterError
from adapter.waits import Waits

T = TypeVar("T")

Work = Callable[[Waits, Callable[[], int]], Coroutine[Any, Any, T]]
"""Does it. Is given what to note its waits in, and a question: how many wait for the outcome now."""


@dataclass(eq=False)
class _Flight(Generic[T]):
    waits: Waits
    members: int = 0
    is_ending: bool = False
    task: asyncio.Task[T] = field(init=False)


@dataclass(frozen=True)
class Landed(Generic[T]):
    """What came of shared work."""

    result: T
    is_own: bool
    """Whether it was done for the one who asks."""


class Flights(Generic[T]):
    """All that is under way, by key."""

    def __init__(self, abandoned: Callable[[T], Coroutine[Any, Any, None]]) -> None:
        """`abandoned`: takes the share of a caller that was cancelled just when the work was done."""
        self._abandoned = abandoned
        self._flights: dict[str, _Flight[T]] = {}

    async def join(self, key: str, waits: Waits, work: Work[T]) -> Landed[T] | None:
        """
        What the work gives; that of another caller, if it is under way.

        Returns:
            None when work that was given up has ended meanwhile: look again, then ask again.

        Args:
            key: of what is wanted.
            waits: of the caller.
            work: when its last await is over, the number of those who wait for it is final: each of them gets the result.

        Raises:
            what the work raised, a copy for each caller.
        """
        flight = self._flights.get(key)
        if flight is not None and flight.is_ending:
            with waits.on("the end of a pull of the same files that was given up"):
                await asyncio.wait({flight.task})
            return None
        is_own = flight is None
        if flight is None:
            flight = self._begin(key, waits, work)
        try:
            return Landed(await self._wait(flight, waits), is_own)
        except AdapterError as error:
            raise copy.copy(error) from error

    def _begin(self, key: str, waits: Waits, work: Work[T]) -> _Flight[T]:
        flight: _Flight[T] = _Flight(waits.to_share())
        flight.task = asyncio.create_task(self._fly(key, flight, work), name=f"pull {key}")
        # of a task that is cancelled before its first step, nothing else runs
        flight.task.add_done_callback(lambda _: self._end(key, flight))
        self._flights[key] = flight
        return flight

    async def _fly(self, key: str, flight: _Flight[T], work: Work[T]) -> T:
        try:
            return await work(flight.waits, lambda: flight.members)
        finally:  # no await between the work's last one and this: none joins work that is done
            self._end(key, flight)

    def _end(self, key: str, flight: _Flight[T]) -> None:
        if self._flights.get(key) is flight:
            del self._flights[key]

    async def _wait(self, flight: _Flight[T], waits: Waits) -> T:
        flight.members += 1
        try:
            with waits.sharing(flight.waits):
                return await asyncio.shield(flight.task)
        except asyncio.CancelledError:
            if flight.members == 1 and not flight.task.done():
                flight.is_ending = True
                flight.task.cancel()
                await _ended(flight.task)
            if flight.task.done() and not flight.task.cancelled() and flight.task.exception() is None:
                await self._abandoned(flight.task.result())
            raise
        finally:
            flight.members -= 1


async def _ended(task: asyncio.Task[T]) -> None:
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:  # a second cancel must not leave the work behind
            continue
    if not task.cancelled():
        task.exception()
