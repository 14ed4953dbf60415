"""What a runtime announces at the start, checked as ModelMesh checks it, and what ModelMesh makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

UNIT_BYTES = 8192
"""ModelMesh counts in these. Source: `ModelLoader.java` 37, 55."""
MIB = 1 << 20
SHORTEST_TIMEOUT_MS = 100


class FatalError(Exception):
    """A ModelMesh process would end with these words, and its container would start again."""


def units_of(size_bytes: int) -> int:
    """Units for this size: rounded up, and never none."""
    return max(1, -(-size_bytes // UNIT_BYTES))


@dataclass(frozen=True, kw_only=True)
class Announced:
    """The numbers of one READY answer."""

    capacity_bytes: int
    default_bytes: int
    threads: int
    """Loads at a time."""
    timeout_ms: int
    """Of one load, from the call on."""
    methods: frozenset[str] = frozenset()
    """What clients may call; empty: everything."""

    @classmethod
    def of(cls, answer: Any) -> Announced:
        """
        From a `RuntimeStatusResponse`.

        Raises:
            FatalError: with every number that ModelMesh would refuse.
        """
        announced = cls(
            capacity_bytes=answer.capacityInBytes,
            default_bytes=answer.defaultModelSizeInBytes,
            threads=answer.maxLoadingConcurrency,
            timeout_ms=answer.modelLoadingTimeoutMs,
            methods=frozenset(answer.methodInfos),
        )
        if problems := list(announced.problems()):
            raise FatalError("; ".join(problems))
        return announced

    def problems(self) -> Iterator[str]:
        """Source: `ModelMesh.java` 676-685, 1264-1276."""
        needed = max(2 * self.default_bytes, min(512 * MIB, 10 * self.default_bytes))
        if self.default_bytes < 1:
            yield "defaultModelSizeInBytes is 0"
        if self.capacity_bytes < needed:
            yield f"capacityInBytes is {self.capacity_bytes}, but ModelMesh needs {needed} for a default size of {self.default_bytes}"
        if self.threads < 1:
            yield "maxLoadingConcurrency is 0"
        if self.timeout_ms < SHORTEST_TIMEOUT_MS:
            yield f"modelLoadingTimeoutMs is {self.timeout_ms}, but ModelMesh needs {SHORTEST_TIMEOUT_MS}"

    @property
    def capacity_units(self) -> int:
        """Of the cache, the reserve included."""
        return self.capacity_bytes // UNIT_BYTES

    @property
    def default_units(self) -> int:
        """Weight of a model whose size is not predicted."""
        return units_of(self.default_bytes)

    @property
    def reserve_units(self) -> int:
        """Kept for unloads: a share of the loads at a time, from 1 % to 10 % of the capacity. Source: `ModelMesh.java` 746-763."""
        wanted = self.threads * self.default_units // (2 if self.threads <= 2 else 4)
        return max(1, min(max(wanted, self.capacity_units // 100), self.capacity_units // 10))

    @property
    def usable_units(self) -> int:
        """For models."""
        return self.capacity_units - self.reserve_units

    @property
    def timeout_seconds(self) -> float:
        """Of one load."""
        return self.timeout_ms / 1000
