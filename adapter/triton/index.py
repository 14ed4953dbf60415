"""
Triton's repository index, and what to do when it fails.

One bad entry in the repository folder breaks the index for every model: a dangling link, a name
that is not UTF-8. The folder is ours alone, so a failed listing is answered by a sweep of it and
asked again; a directory that vanished during the scan needs no more than that.
"""

from __future__ import annotations

import asyncio

import structlog

from adapter.backoff import doubling
from adapter.errors import ServerError
from adapter.model import ServerModel
from adapter.triton.client import CallError, TritonAway, TritonClient
from adapter.triton.presence import Presence
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository

ATTEMPTS = 5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 1.0

log = structlog.stdlib.get_logger(__name__)


class Index:
    """Asks for the index, again where that helps."""

    def __init__(self, *, client: TritonClient, presence: Presence, repository: Repository) -> None:
        self._client = client
        self._presence = presence
        self._repository = repository
        self.problem: str | None = None
        """Why the last listing failed; None after one that did not."""

    async def rows(self) -> list[ServerModel]:
        """All rows. Waits for a Triton that is away, and for one that cannot list its folder."""
        pauses = doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        while True:
            rows = await self._ask(None)
            if rows is not None:
                return rows
            await self._presence.wait()
            await asyncio.sleep(next(pauses))

    async def look(self, names: frozenset[str]) -> list[ServerModel] | None:
        """The rows of some names, by one call; None when it failed."""
        return await self._ask(names)

    async def lists(self, name: str) -> bool:
        """
        Whether there is a row for a directory that was just made. A Triton that is away proves nothing, and is waited for.

        Raises:
            ServerError: Triton answers, but cannot list its folder.
        """
        answers = 0
        while answers < ATTEMPTS:
            await self._presence.wait()
            if await self._ask(frozenset({name})):
                return True
            answers += self._presence.problem is None
            await asyncio.sleep(FIRST_PAUSE_SECONDS)
        if self.problem is not None:
            raise ServerError(self.problem)
        return False

    async def reason(self, model_id: str) -> str:
        """Why the model's last load failed."""
        reasons = [one_line(row.reason) for row in await self.rows() if row.name == model_id and row.reason]
        return "; ".join(dict.fromkeys(reasons)) or one_line("")

    async def _ask(self, names: frozenset[str] | None) -> list[ServerModel] | None:
        try:
            rows = await self._client.index(names)
        except TritonAway as away:
            self._presence.lost(away)
            return None
        except CallError as failure:
            problem = f"Triton cannot list its model repository: {one_line(str(failure))}"
            if self.problem != problem:
                log.warning("index.failed", cause=one_line(str(failure)))
            self.problem = problem
            await self._repository.sweep()
            return None
        self.problem = None
        return rows
