"""
Freeing models: one as ModelMesh asks for it, or all of them in a purge.

An unload of a model follows every load of it that Triton has: an unload that comes during the load
kills some Tritons. It ends when the index shows that the memory is free. The index shows only what
has a directory, so that is made before anything is asked.
"""

from __future__ import annotations

import asyncio

import structlog

from adapter.errors import ServerError, some
from adapter.model import owner_of
from adapter.telemetry.metrics import UNLOAD_WAIT_SECONDS
from adapter.triton.client import CallError, TritonClient
from adapter.triton.index import Index
from adapter.triton.loads import Loads
from adapter.triton.presence import Presence
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.triton.unload_watch import UnloadWatch

PARALLEL = 16
"""Unload calls of a purge at once. More is no faster (a global lock), fewer would let long loads hold up the others."""
NEWS_SECONDS = 10.0
NAMED = 5

log = structlog.stdlib.get_logger(__name__)


class Unloads:
    """Tells Triton to unload, and waits until it has."""

    def __init__(self, *, client: TritonClient, presence: Presence, index: Index, repository: Repository, loads: Loads) -> None:
        self._client = client
        self._presence = presence
        self._index = index
        self._repository = repository
        self._loads = loads
        self._watch = UnloadWatch(look=index.look, restore=repository.ensure_directory)
        self.problem: str | None = None
        """What a purge that takes long is waiting for."""

    async def close(self) -> None:
        """Wait for nothing any more."""
        await self._watch.close()

    async def tell(self, name: str) -> None:
        """RepositoryModelUnload, as often as it takes. Raises WrongServer, ServerError."""
        try:
            await self._presence.until_taken(lambda: self._client.unload(name))
        except CallError as failure:
            raise ServerError(f"Triton does not unload the model: {one_line(str(failure))}") from failure

    async def free(self, name: str, calls: asyncio.Semaphore | None = None) -> None:
        """
        Return when no version holds memory, a bundle's inner models included; `calls` bounds the calls, not the wait.

        Raises WrongServer, ServerError.
        """
        names, owner = self._names(name), owner_of(name)
        await self._loads.ended(owner)
        await self._presence.wait()
        for part in names:
            await self._repository.ensure_directory(part)
            if not self._loads.is_answered(owner):  # somebody else's load may be on its way
                await self._watch.settled(part)
        self._loads.forget(owner)
        async with calls or asyncio.Semaphore():
            for part in names:
                await self.tell(part)
        loop = asyncio.get_running_loop()
        told_at = loop.time()
        for part in names:
            await self._watch.gone(part)
        UNLOAD_WAIT_SECONDS.observe(loop.time() - told_at)

    def obstacle(self, name: str) -> str:
        """What an unload of the model is waiting for."""
        if self._presence.problem is not None:
            return self._presence.problem
        if (seconds := self._loads.seconds_since_sent(owner_of(name))) is not None:
            return f"Triton has been loading the model for {seconds:.0f} s, and a load cannot be cancelled"
        sights = (self._watch.sight(part) for part in self._names(name))
        return self._index.problem or next(filter(None, sights), None) or "Triton has not answered the unload"

    def _names(self, name: str) -> tuple[str, ...]:
        """The model, and what else of its bundle Triton may hold; top first, for it uses the others."""
        return (name, *self._repository.inner_names(name))

    async def purge(self) -> None:
        """
        Unload every model in any state; returns when none holds memory and the repository folder is empty.

        Waits as long as that takes. Raises WrongServer, ServerError.
        """
        await self._repository.sweep()
        told: set[str] = set()
        try:
            while names := await self._held(told):
                await self._free_all(names)
                told |= names
        finally:
            self.problem = None
        await self._repository.clear()

    async def _held(self, told: set[str]) -> set[str]:
        """
        What may hold memory, and what has any state and was not told to unload yet.

        The index leaves out models whose directory is missing; models that serve have statistics.
        """
        rows = await self._index.rows()
        try:
            served = await self._presence.until_taken(self._client.served_names)
        except CallError as failure:
            log.warning("statistics.refused", cause=str(failure), consequence="models without a directory are not purged")
            served = set()
        unlisted = served - {row.name for row in rows}
        nameless = {name for name in unlisted if not self._repository.can_hold(name)}
        for name in nameless:  # `a/`, `../b`: names that other callers of an old Triton can load, and that no index shows
            await self.tell(name)
        held = {row.name for row in rows if row.holds_memory or (row.state and row.name not in told)}
        return held | self._loads.names() | (unlisted - nameless)

    async def _free_all(self, names: set[str]) -> None:
        calls = asyncio.Semaphore(PARALLEL)
        tasks = {asyncio.create_task(self.free(name, calls), name=name) for name in names}
        pending = tasks
        try:
            while pending:
                done, pending = await asyncio.wait(pending, timeout=NEWS_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                if pending:
                    self._report(sorted(task.get_name() for task in pending))
        finally:
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _report(self, names: list[str]) -> None:
        waits_for = some([f"{name} ({self.obstacle(name)})" for name in names], NAMED)
        self.problem = f"the purge waits for Triton to free {waits_for}"
        log.info("purge.delayed", models=len(names), waits_for=waits_for)
