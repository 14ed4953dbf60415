"""
What Triton's index holds, asked once for all who want to know it at a time.

A question for the index holds the lock that inference needs: thousands of loads that come after a restart of Triton must
not each ask. Nobody gets an answer whose question is older than his own: whoever comes while a look is under
way shares the next one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence

from adapter.inventory import by_owner
from adapter.model import ServerModel
from adapter.ports import ModelServer

Rows = Mapping[str, Sequence[ServerModel]]
"""Of the index, by model id."""


class Looks:
    """Asks one after the other."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._latest: asyncio.Task[Rows] | None = None
        self._next: asyncio.Task[Rows] | None = None
        """In this look nothing was asked yet."""
        self._sharers: Counter[asyncio.Task[Rows]] = Counter()

    async def rows(self) -> Rows:
        """What the index shows after now. Raises as `ModelServer.index`; the look ends when all who share it have gone."""
        look = self._next or self._begin()
        self._sharers[look] += 1
        try:
            return await asyncio.shield(look)
        finally:
            self._sharers[look] -= 1
            if not self._sharers[look]:
                del self._sharers[look]
                if self._next is look:
                    self._next = None
                look.cancel()
                await asyncio.wait({look})

    def _begin(self) -> asyncio.Task[Rows]:
        self._latest = self._next = asyncio.create_task(self._look(self._latest), name="look")
        return self._next

    async def _look(self, earlier: asyncio.Task[Rows] | None) -> Rows:
        if earlier is not None:
            await asyncio.wait({earlier})
        self._next = None
        return by_owner(await self._server.index())
