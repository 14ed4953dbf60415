"""Curves over a long run: what is flat, in words, and how it looks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

BARS = "▁▂▃▄▅▆▇█"
FEWEST = 9
"""Values that a curve is judged by: three of each third."""


@dataclass(frozen=True)
class Bound:
    """How much more the last third of a curve may have than the middle third, by their medians: whichever of the two is more."""

    more: float
    """In the unit of the curve."""
    share: float = 0.0
    """Of the median of the middle third."""

    def allowed(self, middle: float) -> float:
        """Of a curve whose middle third has this median."""
        return max(self.more, self.share * middle)


@dataclass
class Curve:
    """One quantity at the ends of equal stretches of a run."""

    name: str
    unit: str
    bound: Bound | None
    """None: shown, and not judged."""
    values: list[float] = field(default_factory=list)

    @property
    def first(self) -> float:
        """Median of the first third: the run gets warm."""
        return median(self.values[: len(self.values) // 3])

    @property
    def middle(self) -> float:
        """Median of the middle third."""
        return median(self.values[len(self.values) // 3 : 2 * len(self.values) // 3])

    @property
    def last(self) -> float:
        """Median of the last third."""
        return median(self.values[2 * len(self.values) // 3 :])

    @property
    def is_flat(self) -> bool:
        """Whether the last third has no more than the middle third and its bound. Falls are no trouble."""
        assert len(self.values) >= FEWEST, f"{self.name} has {len(self.values)} values"
        return self.bound is None or self.last - self.middle <= self.bound.allowed(self.middle)

    def drawn(self, columns: int = 30) -> str:
        """From its least to its most value, which is at least its bound above."""
        low = min(self.values)
        allowed = self.bound.allowed(self.middle) if self.bound else 0.0
        span = max(max(self.values) - low, allowed, 1e-9)
        width = min(columns, len(self.values))
        edges = [round(number * len(self.values) / width) for number in range(width + 1)]
        points = [median(self.values[begin:end]) for begin, end in pairwise(edges)]
        return "".join(BARS[min(len(BARS) - 1, int((point - low) / span * len(BARS)))] for point in points)

    def row(self) -> dict[str, str]:
        """For a table."""
        allowed = "" if self.bound is None else f"{self.bound.allowed(self.middle):.4g}"
        return {
            "curve": self.name,
            "unit": self.unit,
            "first third": f"{self.first:.5g}",
            "middle third": f"{self.middle:.5g}",
            "last third": f"{self.last:.5g}",
            "may grow by": allowed or "not judged",
            "flat": "" if self.bound is None else "yes" if self.is_flat else "NO",
            "over time": self.drawn(),
        }


def grown(curves: Sequence[Curve]) -> list[str]:
    """Those that are not flat, in words."""
    return [
        f"{curve.name} grows: {curve.middle:.5g} {curve.unit} in the middle third, {curve.last:.5g} in the last third, "
        f"more than {curve.bound.allowed(curve.middle):.4g} above"
        for curve in curves
        if curve.bound is not None and not curve.is_flat
    ]
