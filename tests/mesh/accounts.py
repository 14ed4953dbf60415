"""
ModelMesh's accounting of memory: pure, synchronous, in units of 8 KiB.

One LRU cache holds the models and a buffer for unloads. A model that is asked for *borrows* its weight from that buffer until
the unloads that it caused have ended; only then may its load begin (`claim`). So what is loaded, being loaded and being
unloaded never exceeds the capacity, unless a model turns out larger than predicted (`deficit`).
Source: `ModelCacheUnloadBufManager.java`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Phase(enum.Enum):
    """What an entry of the cache stands for."""

    REQUESTED = "requested"
    """Weight is asked for; nothing was sent."""
    HELD = "held"
    """A load was sent, or is answered."""
    FAILED = "failed"
    """A failed load is remembered, with one unit."""


@dataclass
class Entry:
    """One model in the cache."""

    model_id: str
    weight: int
    last_used: float
    phase: Phase = Phase.REQUESTED


class Accounts:
    """The cache and its buffer. A change returns the entries that it evicted, oldest first."""

    def __init__(self, capacity: int, reserve: int) -> None:
        self.capacity = capacity
        self.reserve = reserve
        self.entries: dict[str, Entry] = {}
        self.occupancy = 0
        """Weight of all entries."""
        self.balance = 0
        """Weight of all unloads, less what is borrowed: may be negative."""
        self.deficit = 0
        """Weight above the capacity."""
        self.leaving = 0
        """Weight of all unloads."""
        self.lost = 0
        """Weight whose unloads have failed for good."""
        self.peak = 0
        """Largest `accounted` since it was set to 0."""

    @property
    def buffer(self) -> int:
        """Weight of the buffer for unloads."""
        return min(max(self.reserve, self.balance), max(self.capacity, self.reserve))

    @property
    def weighted(self) -> int:
        """Of everything in the cache."""
        return self.occupancy + self.buffer

    @property
    def free(self) -> int:
        """What is free; may be negative for a moment."""
        return self.capacity - self.weighted

    @property
    def held(self) -> int:
        """Weight of the loads that were sent."""
        return sum(entry.weight for entry in self.entries.values() if entry.phase is Phase.HELD)

    @property
    def accounted(self) -> int:
        """What the runtime may hold: loaded, being loaded, being unloaded, or not to be unloaded."""
        return self.held + self.leaving + self.lost

    @property
    def oldest(self) -> Entry | None:
        """Next to be evicted."""
        return min(self.entries.values(), key=lambda entry: entry.last_used, default=None)

    def insert(self, model_id: str, last_used: float) -> list[Entry]:
        """A new entry of one unit; it may be among the evicted ones itself."""
        assert model_id not in self.entries
        self.entries[model_id] = Entry(model_id, 1, last_used)
        self.balance -= 1
        self.occupancy += 1
        return self._settle()

    def request(self, model_id: str, weight: int) -> list[Entry]:
        """An inserted entry asks for this weight in all; it may be among the evicted ones itself."""
        entry = self.entries[model_id]
        assert entry.phase is Phase.REQUESTED
        increase, entry.weight = weight - entry.weight, weight
        self.occupancy += increase
        self.balance -= increase
        return self._settle()

    def claim(self, model_id: str) -> bool:
        """Whether the space that was asked for is free; the load may be sent then."""
        entry = self.entries[model_id]
        balance = self.balance + entry.weight
        if balance > self.reserve and balance + self.occupancy > self.capacity:
            return False
        self.balance = balance
        entry.phase = Phase.HELD
        evicted = self._settle()
        assert not evicted, "a claim evicts no entry"
        return True

    def measure(self, model_id: str, weight: int) -> list[Entry]:
        """A loaded model has this weight. More than is free becomes a deficit; the oldest go for it."""
        entry = self.entries[model_id]
        delta = weight - entry.weight
        if delta > 0 and (missing := delta - self.free) > 0:
            self.balance -= missing
            self.deficit += missing
        entry.weight = weight
        self.occupancy += delta
        if delta < 0:
            self._repay(-delta, from_balance=False)
        return self._settle()

    def fail(self, model_id: str) -> tuple[int, list[Entry]]:
        """A load that was sent has failed: one unit remembers it, the answer's weight is to be unloaded (0: no unload comes)."""
        entry = self.entries[model_id]
        weight, entry.weight, entry.phase = entry.weight - 1, 1, Phase.FAILED
        self.occupancy -= weight
        self.balance += weight
        self.leaving += weight
        return weight, self._settle()

    def remove(self, model_id: str) -> Entry:
        """Out of the cache. What was held is being unloaded from now on (`end_unload`)."""
        entry = self.entries.pop(model_id)
        self._left(entry)
        self._settle_without_eviction()
        return entry

    def end_unload(self, weight: int, *, is_free: bool) -> list[Entry]:
        """An unload has ended; or it has failed for good, and its weight is taken off the capacity."""
        self.leaving -= weight
        if is_free:
            self._repay(weight, from_balance=True)
        else:
            self.balance -= weight
            self.lost += weight
            self.capacity = max(1, self.capacity - weight)
        return self._settle()

    def touch(self, model_id: str, now: float) -> None:
        """It was used."""
        self.entries[model_id].last_used = max(now, self.entries[model_id].last_used)

    def check(self) -> None:
        """The books agree with themselves. Raises AssertionError with the numbers."""
        failed = sum(entry.weight for entry in self.entries.values() if entry.phase is Phase.FAILED)
        assert self.occupancy == sum(entry.weight for entry in self.entries.values()), self
        assert self.held + self.leaving == self.occupancy - failed + self.balance + self.deficit, self
        assert self.held + self.leaving <= self.capacity + self.deficit, self

    def __repr__(self) -> str:
        return f"Accounts({', '.join(f'{name}={value}' for name, value in vars(self).items() if name != 'entries')}, held={self.held})"

    def _left(self, entry: Entry) -> None:
        self.occupancy -= entry.weight
        if entry.phase is Phase.FAILED:
            self._repay(entry.weight, from_balance=False)
            return
        self.balance += entry.weight
        if entry.phase is Phase.HELD:
            self.leaving += entry.weight

    def _repay(self, weight: int, *, from_balance: bool) -> None:
        """Freed weight pays the deficit first; what is left comes off the unloads, or is simply free."""
        paid = min(weight, self.deficit)
        self.deficit -= paid
        self.balance += paid - weight if from_balance else paid

    def _settle(self) -> list[Entry]:
        evicted = []
        while self.weighted > self.capacity and (oldest := self.oldest):
            del self.entries[oldest.model_id]
            self._left(oldest)
            evicted.append(oldest)
        self._settle_without_eviction()
        return evicted

    def _settle_without_eviction(self) -> None:
        self.peak = max(self.peak, self.accounted)
