"""
The slots that bound how many loads are in Triton, and who gets the next one.

Two classes wait: those that somebody calls for, and those that yield to them (models that are loaded
again in the background). First come, first served within a class. A free slot goes from hand to hand:
while somebody waits none is free, so nobody overtakes, and a waiter that is cancelled in the moment in
which it is served passes the slot on.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass


@dataclass(eq=False)
class Slot:
    """One slot, held for a model."""

    model_id: str
    since: float
    """Time of the loop."""


class Slots:
    """So many slots and no more."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: list[Slot] = []
        self._called: deque[asyncio.Future[None]] = deque()
        self._yielding: deque[asyncio.Future[None]] = deque()
        self._handed = 0
        """Slots that were given to a waiter that has not run since."""

    async def take(self, model_id: str, *, yields: bool = False) -> Slot:
        """
        Wait for a slot; whoever has it gives it back once.

        Args:
            model_id: for whom; `holders` names it.
            yields: whoever does not yield is served first, also when it comes later.
        """
        if len(self._held) + self._handed >= self._count:
            await self._turn(self._yielding if yields else self._called)
        slot = Slot(model_id, asyncio.get_running_loop().time())
        self._held.append(slot)
        return slot

    def give_back(self, slot: Slot) -> None:
        """The next one that waits has it now."""
        self._held.remove(slot)
        self._serve()

    def holders(self) -> list[Slot] | None:
        """Who holds the slots, the oldest first; None when one is free."""
        if len(self._held) < self._count:
            return None
        return list(self._held)

    async def _turn(self, queue: deque[asyncio.Future[None]]) -> None:
        turn = asyncio.get_running_loop().create_future()
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn in queue:
                queue.remove(turn)
            elif not turn.cancelled():  # served and cancelled at once
                self._handed -= 1
                self._serve()
            raise
        self._handed -= 1

    def _serve(self) -> None:
        for queue in (self._called, self._yielding):
            while queue:
                turn = queue.popleft()
                if not turn.done():
                    self._handed += 1
                    turn.set_result(None)
                    return
