"""
The places for loads in Triton, and which load gets the next one.

Loads with a caller have a slot, and each load in Triton has a place. A load that is *left* (its caller has gone, and Triton
cannot cancel it) gives up its slot and keeps its place until it ends.

Two classes wait: loads with a caller, and loads that yield to them (models that are loaded again in the background). First
come, first served within a class: each load has a ticket, and the lowest one has the next free slot.
"""

from __future__ import annotations

import asyncio
import itertools
from bisect import insort
from dataclasses import dataclass

from adapter.errors import some

NAMED = 16


@dataclass(eq=False)
class Slot:
    """One slot, held for a model."""

    model_id: str
    since: float
    """Time of the loop."""


class Slots:
    """A fixed number of slots, in a fixed number of places."""

    def __init__(self, count: int, places: int) -> None:
        self._count = count
        self._places = places
        self._held: list[Slot] = []
        self._left: list[Slot] = []
        self._numbers = itertools.count()
        self._tickets: list[tuple[bool, int]] = []
        """Of the loads that wait, in the order of their turns: whether it yields, and its number."""
        self._changed = asyncio.Event()
        """Set when a slot or a ticket is given back, then replaced."""

    async def take(self, model_id: str, *, yields: bool = False) -> Slot:
        """
        Wait for a slot, which its holder gives back once.

        Args:
            model_id: for whom; `queue` names it.
            yields: loads that do not yield are served first, also when they come later.
        """
        ticket = (yields, next(self._numbers))
        insort(self._tickets, ticket)
        try:
            while self._tickets[0] != ticket or self._free() <= 0:
                await self._changed.wait()
            slot = Slot(model_id, _now())
            self._held.append(slot)
        finally:
            self._tickets.remove(ticket)
            self._wake()
        return slot

    def leave(self, slot: Slot) -> None:
        """The caller has gone, and the load goes on: the next one may have the slot, where there is a place."""
        self._held.remove(slot)
        self._left.append(slot)
        self._wake()

    def occupy(self, model_id: str) -> Slot:
        """A place for a load that is in Triton already, without a caller."""
        slot = Slot(model_id, _now())
        self._left.append(slot)
        return slot

    def give_back(self, slot: Slot) -> None:
        """The load has ended: the next one that waits may have slot and place."""
        (self._left if slot in self._left else self._held).remove(slot)
        self._wake()

    def queue(self) -> str | None:
        """Which models hold the slots, or the places, and since when; None when the next one has its turn."""
        if self._free() > 0:
            return None
        if len(self._held) < self._count:
            return self._lasting()
        now = _now()
        if self._count == 1:
            return f"model {self._held[0].model_id} has held the only loading slot for {now - self._held[0].since:.0f} s"
        *most, last = (f"{slot.model_id} ({now - slot.since:.0f} s)" for slot in self._held)
        return f"models {', '.join(most)} and {last} hold {'both' if self._count == 2 else 'all'} loading slots"

    def _lasting(self) -> str:
        """Slots are free, and Triton has no thread: what has lasted longest first."""
        full = f"Triton has no free load thread (TRITON_LOAD_THREADS is {self._places})"
        if not self._left:
            return f"{_named(self._held)} under way: {full}"
        left = _named(sorted(self._left, key=lambda slot: slot.since))
        others = f"; {_named(self._held)} under way" if self._held else ""
        return f"{left} still in Triton, though nobody waits for the end any more{others}: {full}"

    def _free(self) -> int:
        return min(self._count, self._places - len(self._left)) - len(self._held)

    def _wake(self) -> None:
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def _named(slots: list[Slot]) -> str:
    now = _now()
    names = some([f"{slot.model_id} ({now - slot.since:.0f} s)" for slot in slots], NAMED)
    return f"the load of model {names} is" if len(slots) == 1 else f"the loads of models {names} are"


def _now() -> float:
    return asyncio.get_running_loop().time()
