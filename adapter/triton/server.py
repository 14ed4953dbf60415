"""
Triton as the lifecycle sees it: loads, unloads that are really done, and a purge.

Puts the parts together: `client` calls, `Presence` waits for a Triton that is away, `Loads` keeps
what cannot be cancelled, `Unloads` waits for the memory, `Index` and `Repository` belong to the
folder that both sides see. Triton's own words never come out as they are, nor do gRPC's codes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import structlog

from adapter.errors import ModelRefused, ServerError, WrongServer
from adapter.model import ServerModel
from adapter.triton.client import CallError, TritonClient
from adapter.triton.index import Index
from adapter.triton.loads import Loads
from adapter.triton.presence import Presence
from adapter.triton.repository import Repository
from adapter.triton.unloads import Unloads

log = structlog.stdlib.get_logger(__name__)


class TritonServer:
    """The `ModelServer` of `adapter.ports`, where the contract of each call is written."""

    def __init__(self, *, client: TritonClient, repository: Repository, max_loading: int) -> None:
        self._client = client
        self._repository = repository
        self._presence = Presence(client)
        self._index = Index(client=client, presence=self._presence, repository=repository)
        self._loads = Loads(client=client, presence=self._presence, index=self._index, repository=repository, slots=max_loading)
        self._unloads = Unloads(client=client, presence=self._presence, index=self._index, repository=repository, loads=self._loads)
        self._wrong: str | None = None

    @property
    def problem(self) -> str | None:
        """Why Triton cannot be used now, in words; None when it answers and is ours."""
        return self._presence.problem or self._wrong or self._index.problem or self._unloads.problem

    async def watch(self) -> None:
        """Runs for ever: keeps `problem` true, and notices returns, while nobody calls."""
        await self._presence.watch()

    async def close(self) -> None:
        """Give up on every call; Triton goes on with what it has."""
        await self._unloads.close()
        await self._loads.close()
        await self._client.close()

    async def returned(self) -> bool:
        """Wait until Triton answers after a break; whether it is certainly another process. For one that waits."""
        return await self._presence.returned()

    def confirm_restart(self) -> None:
        """The index shows that the last return was a restart; counted once, also where it was certain before."""
        self._presence.confirm_restart()

    async def load(self, model_id: str, on_sent: Callable[[], None], *, yields: bool = False) -> None:
        """Load the placed model, when there is a slot. A cancel leaves what was sent to Triton, and its slot with it."""
        try:
            await self._loads.load(model_id, on_sent, yields=yields)
        except ModelRefused as refused:
            if self._wrong is None:
                raise
            raise WrongServer(self._wrong) from refused

    def queue(self) -> str | None:
        """Which models hold the loading slots, and since when; None when one is free."""
        return self._loads.queue()

    async def unload(self, model_id: str) -> None:
        """Return when no version of the model holds memory, however long that takes. Unknown models are fine."""
        await self._unloads.free(model_id)

    def obstacle(self, model_id: str) -> str:
        """What an unload of the model is waiting for, in words."""
        return self._presence.problem or self._wrong or self._unloads.obstacle(model_id)

    async def is_ready(self, model_id: str) -> bool:
        """Whether Triton serves the model now."""
        try:
            names = (*self._repository.inner_names(model_id), model_id)
            return all([await self._presence.until_taken(partial(self._client.ready, name)) for name in names])
        except CallError as failure:
            log.debug("readiness.refused", model_id=model_id, cause=str(failure))
            return False

    async def index(self) -> list[ServerModel]:
        """All rows of the repository index, waiting for a Triton that is away or cannot list its folder."""
        return await self._index.rows()

    async def reported_bytes(self, model_id: str) -> int:
        """Memory that Triton's backends report for the model; 0 when they report none."""
        names = (model_id, *self._repository.inner_names(model_id))
        try:
            return sum([await self._presence.until_taken(partial(self._client.reported_bytes, name)) for name in names])
        except CallError as failure:
            log.debug("statistics.refused", model_id=model_id, cause=str(failure))
            return 0

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

    async def _verify(self) -> str:
        await self._presence.wait()
        await self._repository.sweep()
        async with self._repository.probe() as probe:
            await self._unloads.tell(probe)
            if not await self._index.lists(probe):
                raise WrongServer(
                    f"Triton's --model-repository is not {self._repository.folder}: a directory made there is not in Triton's index"
                )
        return await self._presence.until_taken(self._client.version)
