"""Pauses between tries, and a pause that an event ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import suppress


def doubling(first_seconds: float, longest_seconds: float) -> Iterator[float]:
    """Endless pauses in seconds, each twice as long as the one before, up to the longest."""
    pause = first_seconds
    while True:
        yield pause
        pause = min(2 * pause, longest_seconds)


async def set_within(event: asyncio.Event, seconds: float) -> None:
    """Return when the event is set, or after the time."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
