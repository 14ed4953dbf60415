"""
Freeing models: one as ModelMesh asks for it, or all of them in a purge.

An unload of a model is sent after every load of it that Triton has: an unload during the load kills some Tritons. It
ends when the index shows that the memory is free. The index shows only names that have a directory, so one is made for
a name that it leaves out. An unload that was asked for and has not ended is remembered for a while, also when its
caller has gone.

Each unload looks at the index by itself; `index` shares the answers, and bounds the share of Triton's time that all
looks take. The pauses between the looks grow with the wait. A row that is missing proves nothing, and neither does a
failed call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from math import inf

from adapter.errors import ServerError
from adapter.model import owner_of
from adapter.telemetry.metrics import UNLOAD_WAIT_SECONDS
from adapter.triton.client import CallError
from adapter.triton.connection import Connection
from adapter.triton.index import Index
from adapter.triton.loads import Loads
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.waits import end

PARALLEL = 16
"""Unload calls at once. More is no faster (a global lock)."""
REMEMBERED_SECONDS = 600.0
"""So long after its last caller has gone. Longer than the lifecycle's pause before it asks again."""
AT_VOLUME = "waiting for the volume to take a directory for the model"
"""The volume hangs, or may: Triton is not the cause."""

LOADING = frozenset({"LOADING"})
HELD = LOADING | {"UNLOADING", "READY", "UNKNOWN"}
"""States in which a version holds memory."""


@dataclass
class _Asked:
    """An unload that was asked for, and has not ended well. Times are those of the loop."""

    since: float
    until: float = inf
    """It is remembered for so long; finite where a caller has gone before the end."""
    sight: str | None = None
    """What the index said of it last: `version 1 has been UNLOADING`. Or AT_VOLUME."""


class Unloads:
    """Tells Triton to unload, and waits until it has."""

    def __init__(self, connection: Connection, index: Index, repository: Repository, loads: Loads) -> None:
        self._client = connection.client
        self._connection = connection
        self._index = index
        self._repository = repository
        self._loads = loads
        self._calls = asyncio.Semaphore(PARALLEL)
        self._asked: dict[str, _Asked] = {}
        self._time = asyncio.get_running_loop().time

    def asked_at(self) -> dict[str, float]:
        """Unloads that have not ended, by model id: since when, by the clock of the loop. From any thread."""
        told = [each for each in self._asked.copy().items() if each[1].until > self._time() and each[1].sight != AT_VOLUME]
        return {owner_of(name): asked.since for name, asked in told}

    def forget(self, model_id: str) -> None:
        """Triton loads the model anew: what became of an unload that was left does not matter any more."""
        self._asked.pop(model_id, None)

    async def tell(self, name: str, *, has_dependents: bool = True) -> None:
        """RepositoryModelUnload, as often as it takes. Raises WrongServer, ServerError."""
        try:
            async with self._calls:
                await self._connection.retry_while_away(partial(self._client.unload, name, has_dependents=has_dependents))
        except CallError as refused:
            raise ServerError(f"Triton does not unload the model: {one_line(str(refused))}") from refused

    async def free(self, name: str, *, has_dependents: bool | None = None) -> None:
        """
        Return when no version of the model holds memory, a bundle's inner models included.

        Args:
            name: a model id, or what Triton calls a model.
            has_dependents: Triton unloads, too, what an ensemble is made of; None: it does unless it is a bundle.

        Raises:
            WrongServer, ServerError
        """
        owner, inner, repository = owner_of(name), self._repository.inner_names(name), self._repository
        is_theirs = repository.is_of_others(name)
        with self._asking(name) as asked:
            try:
                await self._loads.ended(owner)
                if is_theirs or owner not in self._loads.answered:  # another client may be loading a model of others, too
                    for part in (name, *inner):
                        await self._until(asked, part, LOADING)
                self._loads.answered.discard(owner)
                began = self._time()
                for parts in ((name,), inner):  # the inner ones serve until the requests of the top model have ended
                    for part in parts:
                        await self.tell(part, has_dependents=not inner if has_dependents is None else has_dependents)
                    for part in parts:
                        await self._until(asked, part, HELD)
                UNLOAD_WAIT_SECONDS.observe(self._time() - began)
            finally:
                if is_theirs:  # its files may have come with the load: then a look has made its directory
                    await repository.remove_empty(name)

    def obstacle(self, name: str) -> str:
        """What an unload of the model is waiting for."""
        if (sent_at := self._loads.sent_at().get(owner_of(name))) is not None:
            seconds = self._time() - sent_at
            return f"Triton has been loading the model for {seconds:.0f} s, and a load cannot be cancelled"
        asked = self._asked.get(name)
        sight = f"{asked.sight} for {self._time() - asked.since:.0f} s" if asked and asked.sight else None
        return self._index.problem or sight or "Triton has not answered the unload"

    async def purge(self) -> None:
        """
        Unload every model in any state; returns when none holds memory and the repository folder is empty.

        Waits as long as that takes. Raises WrongServer, ServerError.
        """
        await self._repository.sweep()
        tasks = [asyncio.create_task(self.free(name)) for name in await self._held()]
        try:
            await asyncio.gather(*tasks)
        finally:
            await end(*tasks)
        await self._repository.clear()

    # ---- one unload

    async def _until(self, asked: _Asked, name: str, states: frozenset[str]) -> None:
        """
        Return when no version of the model is in one of the states.

        Args:
            asked: notes what the index says.
            name: of the model.
            states: that are waited for.

        Raises:
            whatever the folder raises.
        """
        since = self._time()
        while True:
            rows = await self._index.rows(name)
            if rows is not None:
                held = [f"version {row.version} has been {row.state}" for row in rows if row.state in states]
                if rows and not held:
                    break
                if not held:
                    asked.sight = AT_VOLUME
                    await self._repository.ensure_directory(name)
                asked.sight = " and ".join(held) or "the model has been missing from Triton's index"
            await self._index.pause(since)
        asked.sight = None

    @contextmanager
    def _asking(self, name: str) -> Iterator[_Asked]:
        """
        While inside, a call waits; the unload is forgotten when it ends well, or by an answer that says why it
        cannot.
        """
        now = self._time()
        for old in [name for name, asked in self._asked.items() if asked.until <= now]:
            del self._asked[old]
        asked = self._asked.setdefault(name, _Asked(now))
        asked.until, asked.sight = inf, None
        try:
            yield asked
        except asyncio.CancelledError:
            asked.until = self._time() + REMEMBERED_SECONDS
            raise
        finally:
            if asked.until == inf:
                self._asked.pop(name, None)

    async def _held(self) -> set[str]:
        """
        What may hold memory: all that has any state.

        The index leaves out models whose directory is missing; models that serve have statistics.
        """
        rows = await self._index.listing()
        served: set[str] = set()
        with suppress(CallError):  # a Triton without statistics: models without a directory are not found
            served = await self._connection.retry_while_away(self._client.served_names)
        unlisted = filter(self._repository.can_hold, served - {row.name for row in rows})
        return {row.name for row in rows if row.state} | self._loads.sent_at().keys() | {*unlisted}
