"""
Triton as the lifecycle sees it: loads, unloads that are really done, and a purge.

Puts the parts together: `client` calls, `Presence` waits for a Triton that is away, `SentLoads`
keeps what cannot be cancelled, `Unloads` waits for the memory, `Index` and `Repository` belong to
the folder that both sides see. Triton's own words never come out as they are, nor do gRPC's codes.

Invariants: a call that Triton has not taken is repeated for as long as the caller has patience; a
load that Triton died over is not, for it may be what killed it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from adapter.errors import ModelRefused, ServerError, ServerUnavailable, UnloadUnfinished, WrongServer
from adapter.model import INNER, ServerModel
from adapter.telemetry.metrics import UNLOADS_UNFINISHED
from adapter.triton.client import AnswerLost, CallError, TritonClient, TritonDied
from adapter.triton.index import Index
from adapter.triton.loads import SentLoads
from adapter.triton.presence import Presence
from adapter.triton.reason import one_line
from adapter.triton.repository import Repository
from adapter.triton.unloads import Unloads

log = logging.getLogger(__name__)


class TritonServer:
    """The `ModelServer` of `adapter.ports`."""

    def __init__(self, *, client: TritonClient, repository: Repository, max_loading: int, unload_timeout_seconds: float) -> None:
        self._client = client
        self._repository = repository
        self._unload_timeout_seconds = unload_timeout_seconds
        self._presence = Presence(ask=client.live, target=client.target)
        self._index = Index(client=client, presence=self._presence, repository=repository)
        self._loads = SentLoads(load=client.load, slots=max_loading)
        self._unloads = Unloads(client=client, presence=self._presence, index=self._index, loads=self._loads, repository=repository)
        self._wrong: str | None = None

    @property
    def is_live(self) -> bool:
        """Whether Triton answered when it was asked last."""
        return self._presence.is_live

    @property
    def problem(self) -> str | None:
        """Why Triton cannot be used now, in words; None when it answers and is ours."""
        return self._presence.problem or self._wrong or self._index.problem or self._unloads.problem

    async def watch(self) -> None:
        """Runs for ever: keeps `is_live` and `problem` true while nobody calls."""
        await self._presence.watch()

    async def close(self) -> None:
        """Give up on every call; Triton goes on with what it has."""
        await self._unloads.close()
        await self._loads.close()
        await self._client.close()

    @asynccontextmanager
    async def loading_slot(self) -> AsyncIterator[None]:
        """Wait for one of the loading slots and for Triton; hold it during `load`."""
        async with self._loads.slot():
            await self._presence.wait()
            yield

    async def load(self, model_id: str) -> None:
        """
        Load the placed model; returns when Triton is ready to serve it. A cancel leaves the call to Triton.

        Of a bundle, first the inner models that Triton does not load with the top model.

        Raises:
            ModelRefused: Triton tried and failed; the text is Triton's reason.
            ServerUnavailable: Triton died meanwhile.
            WrongServer: Triton is not in explicit mode.
        """
        for name in self._repository.loaded_first(model_id):
            try:
                await self._presence.until_taken(partial(self._load, name))
            except ModelRefused as refused:
                raise ModelRefused(f"{_shown_inner(name)}: {refused.text}") from refused
        try:
            await self._presence.until_taken(lambda: self._load(model_id))
        except ModelRefused as refused:
            raise ModelRefused(await self._reason_inside(model_id) or refused.text) from refused

    async def unload(self, model_id: str) -> None:
        """
        Returns when no version of the model holds memory. Unknown models are fine.

        Raises:
            UnloadUnfinished: not within the bound, the wait for a Triton that is away included.
            WrongServer: Triton is not in explicit mode.
        """
        bound = asyncio.timeout(self._unload_timeout_seconds)
        try:
            async with bound:
                await self._unloads.free(model_id)
        except TimeoutError:
            if not bound.expired():
                raise
            UNLOADS_UNFINISHED.inc()
            obstacle = self._unloads.obstacle(model_id)
            log.warning("Triton has not freed model %s within %g s: %s", model_id, self._unload_timeout_seconds, obstacle)
            raise UnloadUnfinished(f"Triton has not freed the model within {self._unload_timeout_seconds:g} s: {obstacle}") from None

    async def is_ready(self, model_id: str) -> bool:
        """Whether Triton serves the model now."""
        try:
            names = (*self._repository.inner_names(model_id), model_id)
            return all([await self._presence.until_taken(partial(self._client.ready, name)) for name in names])
        except CallError as failure:
            log.debug("Triton does not say whether model %s is ready: %s", model_id, failure)
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
            log.debug("Triton has no statistics of model %s: %s", model_id, failure)
            return 0

    async def verify(self) -> str:
        """
        Wait until Triton answers, and make sure that it is ours to control.

        Returns:
            Triton's version.

        Raises:
            WrongServer: not in explicit mode, or its repository is not our folder.
            ServerError: it cannot list its repository.
        """
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

    async def _reason_inside(self, model_id: str) -> str | None:
        """Why an inner model could not be loaded: of the top model Triton then says only that it depends on it."""
        for name in self._repository.inner_names(model_id):
            rows = [row for row in await self._index.rows() if row.name == name and row.reason and not row.holds_memory]
            if rows and not any(row.reason == "unloaded" for row in rows):
                return f"{_shown_inner(name)}: {one_line(rows[0].reason)}"
        return None

    async def _load(self, model_id: str) -> None:
        try:
            await self._loads.send(model_id)
        except TritonDied as died:
            self._presence.lost(died)
            raise ServerUnavailable(
                f"Triton died while it was loading the model ({died}); the load is not repeated, for the model may be the cause"
            ) from died
        except AnswerLost as lost:
            raise ModelRefused(await self._index.reason(model_id)) from lost

    async def _verify(self) -> str:
        await self._presence.wait()
        await self._repository.sweep()
        async with self._repository.probe() as probe:
            await self._unloads.tell(probe)
            if not await self._index.lists(probe):
                raise WrongServer(
                    f"Triton's --model-repository is not {self._repository.folder}: a directory made there is not in Triton's index"
                )
        return (await self._presence.until_taken(self._client.metadata)).version


def _shown_inner(name: str) -> str:
    return f"inner model {name.partition(INNER)[2]}"
