"""
How much memory each load and unload took, of samples of the whole and of when each began and ended. Pure.

What grew between two samples is the sum of what all changes between them took. A change that is alone between two samples took all
of it. Of several, each has bounds: at least what is left when the others take their most, and at most what is left when they take
their least. The bounds of one narrow those of the others, so loads that overlap in part can be told apart, and those that begin and
end together cannot: their bounds stay wide, and a size within wide bounds is an estimate.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from adapter.records import Measure
from adapter.units import MIB

ROUNDS = 4
"""Of narrowing; a further one changes nothing in practice."""
LEAST_SPREAD_BYTES = 4 * MIB
MOST_SPREAD = 0.25
"""Bounds are narrow when they are no further apart than this share, or than the bytes above."""


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
    def sign(self) -> tuple[float, float]:
        """The bounds of any load, or of any unload."""
        return (0.0, math.inf) if self.most > 0 else (-math.inf, 0.0)


def bounds(change: Change, changes: Sequence[Change], samples: Sequence[Sample]) -> tuple[float, float] | None:
    """
    Least and most bytes that the change has added.

    Args:
        change: one of the changes, that has ended.
        changes: all that may overlap with it.
        samples: in the order of time.

    Returns:
        None while a sample before or after it is missing.
    """
    windows = {each: window for each in changes if (window := _window(each, samples)) is not None}
    if change not in windows:
        return None
    known = {each: (each.least, each.most) for each in changes}
    for _ in range(ROUNDS):
        for before, after in dict.fromkeys(windows.values()):
            _narrow(known, before, after)
    return known[change]


def measure(low: float, high: float, estimate_bytes: int) -> Measure:
    """The size of a model that took between `low` and `high`; of wide bounds, the estimate as far as it lies in them."""
    spread = high - low
    if high < math.inf and spread <= max(LEAST_SPREAD_BYTES, MOST_SPREAD * high):
        return Measure(int(high), "measured", int(spread))
    return Measure(int(min(max(estimate_bytes, low), high)), "estimated", int(min(spread, 2**62)))


def _window(change: Change, samples: Sequence[Sample]) -> tuple[Sample, Sample] | None:
    """The last sample before it, and the first one after it."""
    before = bisect_right(samples, change.begin, key=_time) - 1
    after = bisect_left(samples, change.end, key=_time)
    return (samples[before], samples[after]) if before >= 0 and after < len(samples) else None


def _narrow(known: dict[Change, tuple[float, float]], before: Sample, after: Sample) -> None:
    """What two samples say of the changes between them. Bounds that noise would turn around meet instead."""
    touching = [each for each in known if each.begin < after.at and each.end > before.at]
    inside = [each for each in touching if before.at <= each.begin and each.end <= after.at]
    growth = after.used_bytes - before.used_bytes
    for change in inside:
        low, high = known[change]
        others = [_part(known[each], is_whole=each in inside) for each in touching if each is not change]
        least = growth - sum(most for _, most in others)
        most = growth - sum(least for least, _ in others)
        known[change] = max(low, min(least, high)), min(high, max(most, low))


def _part(known: tuple[float, float], *, is_whole: bool) -> tuple[float, float]:
    """Of a change that lies only partly between two samples any part may."""
    return known if is_whole else (min(known[0], 0.0), max(known[1], 0.0))


def _time(sample: Sample) -> float:
    return sample.at
