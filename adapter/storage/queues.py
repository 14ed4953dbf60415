"""
Requests to an endpoint: how many may be under way at a time, and which waits next.

A silent endpoint holds each request until the caller's time is up. So all endpoints together may have twice as many as one:
what one that is dead cannot take is left to the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from weakref import WeakValueDictionary

from adapter.waits import Waits


class EndpointQueues:
    """Turns, first come first served."""

    def __init__(self, each: int) -> None:
        """`each`: requests of one endpoint at a time."""
        self._each = each
        self._all = asyncio.Semaphore(2 * each)
        self._of: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()
        """By endpoint. One that no request uses or waits for goes."""

    @asynccontextmanager
    async def turn(self, endpoint: str, waits: Waits) -> AsyncIterator[None]:
        """While inside, one request may be under way to this endpoint. Until there is a turn, that is what is waited for."""
        turns = self._of.setdefault(endpoint, asyncio.Semaphore(self._each))
        async with (
            _held(turns, waits, f"a free request to {endpoint} (all {self._each} wait for it)"),
            _held(self._all, waits, f"a free request to storage (all {2 * self._each} wait for stores)"),
        ):
            yield


@asynccontextmanager
async def _held(turns: asyncio.Semaphore, waits: Waits, what: str) -> AsyncIterator[None]:
    with waits.on(what) if turns.locked() else nullcontext():
        await turns.acquire()
    try:
        yield
    finally:
        turns.release()
