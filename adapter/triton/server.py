"""
Triton as the lifecycle sees it: loads, unloads that are really done, and a purge.

Puts the parts together: `client` calls, `Connection` waits for a Triton that is away, `Loads` keeps what cannot be
cancelled, `Unloads` waits for the memory, `RestartAdvice` says what does not end, `Index` and `Repository` belong to
the folder that both sides see. Triton's own words never come out as they are, nor do gRPC's codes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import TypeVar

import structlog

from adapter.errors import ModelRefused, ServerError, WrongServer
from adapter.model import Overrides, ServerModel
from adapter.triton.client import CallError, TritonClient
from adapter.triton.connection import Connection
from adapter.triton.index import Index, named
from adapter.triton.loads import Limits, Loads
from adapter.triton.repository import Repository
from adapter.triton.stuck import Health, RestartAdvice
from adapter.triton.unloads import Unloads

VERIFY_SECONDS = 10.0
"""Between two looks at a Triton that was found to be wrong, where no call asks."""

T = TypeVar("T")
log = structlog.stdlib.get_logger(__name__)


class TritonServer:
    """The `ModelServer` of `adapter.ports`, where the contract of each call is written."""

    def __init__(
        self,
        *,
        client: TritonClient,
        repository: Repository,
        max_loading: int,
        load_threads: int = 4,
        load_timeout_seconds: float = 30.0,
        silent_seconds: float = 60.0,
    ) -> None:
        """
        Args:
            client: calls Triton.
            repository: the folder that both sides see.
            max_loading: most loads with callers at once.
            load_threads: of Triton; never more loads are in it.
            load_timeout_seconds: announced to ModelMesh.
            silent_seconds: so long a Triton that accepts connections may be silent.
        """
        self._client = client
        self._repository = repository
        limits = Limits(max_loading, load_threads, load_timeout_seconds, silent_seconds)
        self._connection = connection = Connection(client)
        self._index = Index(connection, repository)
        self._loads = Loads(connection, self._index, repository, limits)
        self._unloads = Unloads(connection, self._index, repository, self._loads)
        self.others = _Others(self._loads, self._unloads)
        clock = asyncio.get_running_loop().time
        self._advice = RestartAdvice(connection, self._loads, self._unloads, limits, clock)
        self._wrong: str | None = None

    @property
    def problem(self) -> str | None:
        """Why Triton cannot be used now, in words; None when it answers and is ours."""
        return self._connection.problem or self._wrong or self._index.problem or self._unloads.problem

    @property
    def notice(self) -> str | None:
        """What is told of a Triton that can be used: that its index is slow. From any thread."""
        return self._index.notice

    async def watch(self) -> None:
        """Runs for ever: keeps `problem` and `health` true, and notices returns, without a call."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._connection.watch(), name="watch of Triton's connection")
            group.create_task(self._verify_again(), name="watch of what is wrong with Triton")

    def health(self) -> Health:
        """What in Triton does not end, and whether nothing but a restart can help. From any thread."""
        return self._advice.health()

    async def close(self) -> None:
        """Give up on every call; Triton goes on with what it has."""
        await self._loads.close()
        await self._index.close()
        await self._connection.close()
        await self._client.close()

    async def returned(self) -> bool:
        """Wait until Triton answers after a break; whether it is certainly another process. For one that waits."""
        return await self._connection.returned()

    def confirm_restart(self) -> None:
        """The index shows that the last return was a restart; counted once, also where it was certain before."""
        self._connection.confirm_restart()

    async def load(self, model_id: str, on_sent: Callable[[], None], *, yields: bool = False) -> None:
        """
        Load the placed model, when there is a slot. A cancel gives the slot back, and leaves what was sent to Triton.
        """
        try:
            await self._loads.load(model_id, on_sent, yields=yields)
        except ModelRefused as refused:
            if self._wrong is None:
                raise
            raise WrongServer(self._wrong) from refused

    def queue(self) -> str | None:
        """
        Which models hold the loading slots, or Triton's load threads, and since when; None when the next load has its
        turn.
        """
        return self._loads.queue()

    async def unload(self, model_id: str) -> None:
        """Return when no version of the model holds memory, however long that takes. Unknown models are fine."""
        await self._unloads.free(model_id)

    def obstacle(self, model_id: str) -> str:
        """What an unload of the model is waiting for, in words."""
        return self._connection.problem or self._wrong or self._unloads.obstacle(model_id)

    async def is_ready(self, model_id: str) -> bool:
        """Whether Triton serves the model now."""
        return all(await self._answers(model_id, self._client.ready) or [False])

    async def index(self, model_ids: Collection[str] | None = None, *, can_wait: bool = False) -> list[ServerModel]:
        """
        Rows of the repository index, waiting for a Triton that is away or cannot list its folder.

        A whole index also tells of loads that an earlier adapter has left in Triton: each has a place.
        """
        listing = await self._index.listing(can_wait=can_wait)
        rows = list(chain(*(listing.values() if model_ids is None else (listing.get(name, ()) for name in model_ids))))
        if model_ids is None:
            self._loads.found(row.name for row in rows if row.state == "LOADING")
        return rows

    async def reported_bytes(self, model_id: str) -> int | None:
        """
        Memory that Triton's backends report for the model; 0 when they report none.

        None: Triton has no statistics of it. It has some of each model that is READY, and refuses the question for any
        other.
        """
        answers = await self._answers(model_id, self._client.reported_bytes)
        return None if answers is None else sum(answers)

    async def _answers(self, model_id: str, ask: Callable[[str], Awaitable[T]]) -> list[T] | None:
        """For the model, and each inner model of a bundle; None: Triton refuses."""
        names = (*self._repository.inner_names(model_id), model_id)
        try:
            return [await self._connection.retry_while_away(partial(ask, name)) for name in names]
        except CallError as failure:
            log.debug("question.refused", model_id=model_id, cause=str(failure))
            return None

    async def verify(self) -> str:
        """Wait until Triton answers, make sure that it is ours to control, and return its version."""
        try:
            version = await self._verify()
        except (WrongServer, ServerError) as failure:
            self._wrong = failure.text
            raise
        self._wrong = None
        return version

    async def purge(self) -> None:
        """Unload every model in any state; returns when none holds memory and the repository is empty."""
        await self._unloads.purge()

    async def _verify_again(self) -> None:
        """For ever: what was wrong may have been put right, and there may be no call."""
        while True:
            await asyncio.sleep(VERIFY_SECONDS)
            if self._wrong is not None:
                try:
                    await self.verify()
                except Exception as failure:  # noqa: BLE001 - an end of this watch would end the adapter
                    log.debug("server.still_wrong", cause=str(failure))

    async def _verify(self) -> str:
        await self._connection.wait()
        await self._repository.sweep()
        async with self._repository.probe() as probe:
            await self._unloads.tell(probe)
            is_listed = bool(named(await self._index.listing(), probe))
        if not is_listed:
            wrong = f"Triton's --model-repository is not {self._repository.folder}"
            raise WrongServer(f"{wrong}: a directory made there is not in Triton's index")
        return await self._connection.retry_while_away(self._client.version)


@dataclass(frozen=True)
class _Others:
    """As `ports.OtherModels`: they share Triton's load threads and its index with the adapter's own models."""

    loads: Loads
    unloads: Unloads

    async def load(self, name: str, overrides: Overrides) -> None:
        """As `OtherModels`."""
        await self.loads.load(name, lambda: None, overrides=overrides)

    async def unload(self, name: str, *, has_dependents: bool) -> None:
        """As `OtherModels`."""
        await self.unloads.free_of_others(name, has_dependents=has_dependents)
