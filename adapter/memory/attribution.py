"""
How much memory each load and unload took, of samples of the whole and of when each began and ended. Pure.

What grew between two samples is the sum of what all changes between them took. A change that is alone between two samples took all
of it. Of several, each has bounds: at least what is left when the others take their most, and at most what is left when they take
their least. The bounds of one narrow those of the others. A load may take more while it runs than at its end, so of one that lies only
partly between two samples nothing is known but that it takes memory. Loads that begin and end together cannot be told apart: their
bounds stay wide, and a size within wide bounds is an estimate.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.records import Measure
from adapter.units import MIB

ROUNDS = 4
"""Of narrowing; a further one changes nothing in practice."""
LEAST_SPREAD_BYTES = 4 * MIB
MOST_SPREAD = 0.25
"""Bounds are narrow when they are no further apart than this share of the lower one, and so of the truth, or than the bytes above."""


Bounds = tuple[float, float]
"""The least and the most, in bytes."""


class Sample(NamedTuple):
    """What was used of one memory at one time."""

    at: float
    used_bytes: int


@dataclass(eq=False)
class Change:
    """A load or an unload."""

    model: str
    begin: float
    end: float = math.inf
    """Infinite while it runs."""
    least: float = 0.0
    most: float = math.inf
    """Bounds of what it adds to the memory in use, in bytes; of an unload both are negative, or 0."""

    @property
    def is_running(self) -> bool:
        """Whether it has not ended."""
        return self.end == math.inf

    @property
    def sign(self) -> Bounds:
        """The bounds of any load, or of any unload."""
        return (0.0, math.inf) if self.most > 0 else (-math.inf, 0.0)


def bounds(change: Change, changes: Sequence[Change], samples: Sequence[Sample]) -> Bounds | None:
    """
    Least and most bytes that the change has added.

    Args:
        change: one that has ended.
        changes: all that may overlap with it.
        samples: in the order of time.

    Returns:
        None while a sample before or after it is missing.
    """
    own = _window(change, samples)
    if own is None:
        return None
    before, after = own
    windows = {}
    for _ in range(ROUNDS):
        near = [own, *(window for each in _touching(changes, before, after) if (window := _window(each, samples)))]
        before, after = min(window[0] for window in near), max(window[1] for window in near)
        windows.update(dict.fromkeys([*near, (before, after)]))
    known = {each: (each.least, each.most) for each in (*changes, change)}
    for _ in range(ROUNDS):
        for window in windows:
            _narrow(known, *window)
    low, high = known[change]
    return low, min(high, own[1].used_bytes)


def measure(low: float, high: float, estimate_bytes: int) -> Measure:
    """The size of a model that took between `low` and `high`; of wide bounds, the estimate as far as it lies in them."""
    spread = high - low
    if spread <= max(LEAST_SPREAD_BYTES, MOST_SPREAD * low):
        return Measure(int(high), "measured", int(spread))
    return Measure(int(min(max(estimate_bytes, low), high)), "estimated", int(spread))


def _window(change: Change, samples: Sequence[Sample]) -> tuple[Sample, Sample] | None:
    """The last sample before it, and the first one after it."""
    before = bisect_right(samples, (change.begin, math.inf)) - 1
    after = bisect_left(samples, (change.end, -math.inf))
    return (samples[before], samples[after]) if before >= 0 and after < len(samples) else None


def _touching(changes: Iterable[Change], before: Sample, after: Sample) -> list[Change]:
    """Those of which a part lies between the samples."""
    return [each for each in changes if each.begin < after.at and each.end > before.at]


def _narrow(known: dict[Change, Bounds], before: Sample, after: Sample) -> None:
    """What two samples say of the changes between them. Bounds that noise would turn around meet instead."""
    growth = after.used_bytes - before.used_bytes
    parts = {each: _part(each, known[each], before, after) for each in _touching(known, before, after)}
    for change in [each for each in parts if before.at <= each.begin and each.end <= after.at]:
        low, high = known[change]
        others = [part for each, part in parts.items() if each is not change]
        least = growth - sum(most for _, most in others)
        most = growth - sum(least for least, _ in others)
        known[change] = parts[change] = max(low, min(least, high)), min(high, max(most, low))


def _part(change: Change, known: Bounds, before: Sample, after: Sample) -> Bounds:
    """What it adds between two samples. While a load runs it may have taken any amount, and it may give back a part of that."""
    least, most = known
    begins, ends = before.at <= change.begin, change.end <= after.at
    if change.most <= 0:
        return least, most if begins and ends else 0.0
    if not (begins and ends):
        least = 0.0 if begins else -math.inf
    return least, most if ends else math.inf
