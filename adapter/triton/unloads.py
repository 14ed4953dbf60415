"""
Freeing models: one as ModelMesh asks for it, or all of them in a purge.

An unload of a model is sent after every load of it that Triton has: an unload during the load kills some Tritons. It ends when
the index shows that the memory is free. The index shows only names that have a directory, so that is made first.
An unload that was asked for and has not ended is remembered, also when its caller has gone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import structlog

from adapter.errors import ServerError, some
from adapter.model import owner_of
from adapter.telemetry.metrics import UNLOAD_WAIT_SECONDS
from adapter.triton.client import CallError, TritonClient
from adapter.triton.connection import Connection
from adapter.triton.freed import BUSY, HELD, LOADING, UNLOADING, FreedWatch
from adapter.triton.index import Index
from adapter.triton.loads import Loads
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository

PARALLEL = 16
"""Unload calls at once. More is no faster (a global lock)."""
ANSWER_SECONDS = 10.0
"""After so long without an answer a call no longer counts: it waits in Triton for a load of its model, or Triton hangs."""
LOOK_SECONDS = 30.0
"""Between looks at unloads without a caller."""
NEWS_SECONDS = 10.0
NAMED = 5

log = structlog.stdlib.get_logger(__name__)


@dataclass
class _Asked:
    """An unload that was asked for, and has not ended well."""

    since: float
    callers: int = 0
    is_at_volume: bool = False
    """The folder hangs, or may: Triton was not told yet."""


class Unloads:
    """Tells Triton to unload, and waits until it has."""

    def __init__(self, *, client: TritonClient, connection: Connection, index: Index, repository: Repository, loads: Loads) -> None:
        self._client = client
        self._connection = connection
        self._index = index
        self._repository = repository
        self._loads = loads
        self._freed = FreedWatch(index, repository.ensure_directory)
        self._calls = asyncio.Semaphore(PARALLEL)
        self._asked: dict[str, _Asked] = {}
        self._time = asyncio.get_running_loop().time
        self.problem: str | None = None
        """What a purge that takes long is waiting for."""

    def asked_at(self) -> dict[str, float]:
        """Unloads that have not ended, by model id: since when, by the clock of the loop. From any thread."""
        return {owner_of(name): asked.since for name, asked in self._asked.copy().items() if not asked.is_at_volume}

    async def watch(self) -> None:
        """For ever: notice what Triton has freed after its caller had gone. The index is asked only while there is such an unload."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            try:
                await self._forget_freed()
            except Exception as failure:  # noqa: BLE001 - it is asked again; an end of this watch would end the adapter
                log.warning("unload.not_followed", cause=str(failure))

    async def tell(self, name: str, *, has_dependents: bool = True) -> None:
        """RepositoryModelUnload, as often as it takes. Raises WrongServer, ServerError."""
        try:
            await self._connection.retry_while_away(partial(self._call, name, has_dependents=has_dependents))
        except CallError as failure:
            raise ServerError(f"Triton does not unload the model: {one_line(str(failure))}") from failure

    async def free(self, name: str) -> None:
        """
        Return when no version holds memory, a bundle's inner models included.

        Raises WrongServer, ServerError.
        """
        with self._asking(name) as asked:
            names, owner = self._names(name), owner_of(name)
            await self._loads.ended(owner)
            await self._connection.wait()
            for part in names:
                asked.is_at_volume = True
                await self._repository.ensure_directory(part)
                asked.is_at_volume = False
                if not self._loads.is_answered(owner):  # a load of another client may be on its way
                    await self._freed.until(part, LOADING)
            is_refused = self._loads.is_refused(owner)
            self._loads.forget(owner)
            began = self._time()
            for parts in (names[:1], names[1:]):  # the inner models serve until the requests of the top one have ended
                for part in parts:
                    await self.tell(part, has_dependents=len(names) == 1)
                told_at = self._time()
                for part in parts:
                    await self._freed.until(part, HELD, told_at, None if is_refused else self._repository.kind(part))
            UNLOAD_WAIT_SECONDS.observe(self._time() - began)

    async def free_of_others(self, name: str, *, has_dependents: bool) -> None:
        """
        As `free`, of a model that the adapter has not placed. What Triton unloads with an ensemble is waited for, too.

        Raises WrongServer, ServerError.
        """
        with self._asking(name):
            await self._loads.ended(name)
            parts = await self._parts(name) if has_dependents else []
            is_listed = bool((await self._index.listing()).of((name,)))
            if not is_listed:  # its files came with the load, so the index shows nothing of it
                await self._repository.ensure_directory(name)
            try:
                await self._freed.until(name, LOADING)
                self._loads.forget(name)
                await self.tell(name, has_dependents=has_dependents)
                await self._freed.until(name, HELD, self._time(), "")
                for part in parts:
                    await self._freed.until(part, UNLOADING)
            finally:
                if not is_listed:
                    await self._repository.remove_empty(name)

    def obstacle(self, name: str) -> str:
        """What an unload of the model is waiting for."""
        if self._connection.problem is not None:
            return self._connection.problem
        if (seconds := self._loads.seconds_since_sent(owner_of(name))) is not None:
            return f"Triton has been loading the model for {seconds:.0f} s, and a load cannot be cancelled"
        if (asked := self._asked.get(name)) is not None and asked.is_at_volume:
            return "waiting for the volume to take a directory for the model"
        sights = (self._freed.sight(part) for part in self._names(name))
        return self._index.problem or next(filter(None, sights), None) or "Triton has not answered the unload"

    async def purge(self) -> None:
        """
        Unload every model in any state; returns when none holds memory and the repository folder is empty.

        Waits as long as that takes. Raises WrongServer, ServerError.
        """
        await self._repository.sweep()
        told: set[str] = set()
        unlisted: set[str] = set()
        while names := await self._held(told, unlisted):
            await self._free_all(names)
            told |= names
        for name in unlisted:  # a directory was made so that the index shows the model
            await self._repository.remove_empty(name)
        await self._repository.clear()

    # ---- one unload

    async def _call(self, name: str, *, has_dependents: bool) -> None:
        """One call, of `PARALLEL` at a time."""
        await self._calls.acquire()
        counted = [self._calls]

        def pass_on() -> None:
            while counted:
                counted.pop().release()

        overdue = asyncio.get_running_loop().call_later(ANSWER_SECONDS, pass_on)
        try:
            await self._client.unload(name, has_dependents=has_dependents)
        finally:
            overdue.cancel()
            pass_on()

    @contextmanager
    def _asking(self, name: str) -> Iterator[_Asked]:
        """While inside, a call waits; the unload is forgotten when it ends well, or by an answer that says why it cannot."""
        asked = self._asked.setdefault(name, _Asked(self._time()))
        asked.callers += 1
        is_cancelled = False
        try:
            yield asked
        except asyncio.CancelledError:
            is_cancelled = True
            raise
        finally:
            asked.callers -= 1
            if not is_cancelled:
                self._asked.pop(name, None)

    def _names(self, name: str) -> tuple[str, ...]:
        """The model, and what else of its bundle Triton may hold; top first, for it uses the others."""
        return (name, *self._repository.inner_names(name))

    async def _parts(self, name: str) -> list[str]:
        """What an ensemble is made of, and what that is made of."""
        found: list[str] = []
        waiting = [name]
        while waiting:
            try:
                parts = await self._connection.retry_while_away(partial(self._client.composing, waiting.pop()))
            except CallError as failure:
                raise ServerError(f"Triton does not tell what the model is made of: {one_line(str(failure))}") from failure
            new = [part for part in dict.fromkeys(parts) if part not in found and part != name]
            found += new
            waiting += new
        return found

    async def _forget_freed(self) -> None:
        idle = {name for name, asked in self._asked.items() if not asked.callers}
        idle -= {name for name in idle if self._loads.seconds_since_sent(owner_of(name)) is not None}
        if not idle or (listing := await self._index.ask()) is None:
            return
        for name in idle:
            asked = self._asked.get(name)
            is_busy = any(row.state in BUSY for part in self._names(name) for row in listing.named(part))
            if asked is not None and not asked.callers and not is_busy:
                del self._asked[name]

    # ---- a purge

    async def _held(self, told: set[str], found_unlisted: set[str]) -> set[str]:
        """
        What may hold memory, and what has any state and was not told to unload yet. Adds to `found_unlisted`.

        The index leaves out models whose directory is missing; models that serve have statistics.
        """
        rows = (await self._index.listing()).rows
        try:
            served = await self._connection.retry_while_away(self._client.served_names)
        except CallError as failure:
            log.warning("statistics.refused", cause=str(failure), consequence="models without a directory are not purged")
            served = set()
        unlisted = served - {row.name for row in rows}
        nameless = {name for name in unlisted if not self._repository.can_hold(name)}
        for name in nameless:  # `a/`, `../b`: names that other callers of an old Triton can load, and that no index shows
            await self.tell(name)
        found_unlisted |= unlisted - nameless
        held = {row.name for row in rows if row.holds_memory or (row.state and row.name not in told)}
        return held | self._loads.names() | (unlisted - nameless)

    async def _free_all(self, names: set[str]) -> None:
        tasks = {asyncio.create_task(self.free(name), name=name) for name in names}
        pending = tasks
        try:
            while pending:
                done, pending = await asyncio.wait(pending, timeout=NEWS_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
                for task in done:
                    task.result()
                if pending:
                    self._report(sorted(task.get_name() for task in pending))
        finally:
            self.problem = None
            for task in pending:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _report(self, names: list[str]) -> None:
        waits_for = some([f"{name} ({self.obstacle(name)})" for name in names], NAMED)
        self.problem = f"the purge waits for Triton to free {waits_for}"
        log.info("purge.delayed", models=len(names), waits_for=waits_for)
