"""Waits of whoever looks on: polls in virtual time, which cost nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

PATIENCE_SECONDS = 4000.0
"""Longer than anything that may wait: budgets, undos, the longest delays."""


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.5)


async def within(work: Coroutine[Any, Any, None]) -> bool:
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            await work
    except TimeoutError:
        return False
    return True
