"""Pauses between tries. Knows no clock: who asks does the waiting, and may be woken."""

from __future__ import annotations

from collections.abc import Iterator


def doubling(first_seconds: float, longest_seconds: float) -> Iterator[float]:
    """Endless pauses in seconds, each twice as long as the one before, up to the longest."""
    pause = first_seconds
    while True:
        yield pause
        pause = min(2 * pause, longest_seconds)
