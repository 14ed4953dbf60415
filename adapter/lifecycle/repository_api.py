"""
Triton's model repository for callers who know Triton's names: the adapter's own models are the lifecycle's, all others Triton's alone.

Of a model of others nothing is kept: Triton that restarts has none of them, and their memory is booked nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence

from adapter.errors import BudgetExceeded, InvalidRequest, ServerUnavailable, UnloadUnfinished
from adapter.model import PROBE, Overrides, ServerModel, id_problem
from adapter.ports import OtherModels
from adapter.serving import KnownModel, Models

INDEX_SECONDS = 30.0
"""Longest wait for a list."""


class RepositoryCalls:
    """What Triton may load, by Triton's names: models of the adapter, and what others have put where Triton finds it."""

    def __init__(
        self,
        *,
        models: Models,
        find: Callable[[str], KnownModel | None],
        server: OtherModels,
        load_seconds: float,
        unload_seconds: float,
        reserved_ids: Collection[str],
    ) -> None:
        """
        Args:
            models: the adapter's own.
            find: one of them by Triton's name.
            server: Triton.
            load_seconds: longest wait for a load of them.
            unload_seconds: likewise for an unload.
            reserved_ids: names of the adapter's folders.
        """
        self._models = models
        self._find = find
        self._server = server
        self._load_seconds = load_seconds
        self._unload_seconds = unload_seconds
        self._reserved_ids = reserved_ids

    async def index(self) -> Sequence[ServerModel]:
        """
        All rows of Triton's index but those of the adapter's own looks.

        Raises:
            ServerUnavailable: it is not to be had soon.
        """
        try:
            async with asyncio.timeout(INDEX_SECONDS):
                rows = await self._server.index()
        except TimeoutError:
            raise ServerUnavailable(self._server.problem or f"Triton has not listed its models within {INDEX_SECONDS:g} s") from None
        return [row for row in rows if not row.name.startswith(PROBE)]

    async def load(self, name: str, overrides: Overrides) -> None:
        """
        Load a model of others, or load it again, and return when it serves. One of the adapter's must be loaded already.

        A cancel leaves the load to Triton.

        Raises:
            InvalidRequest: no model can have this name, or the adapter has loaded it and overrides are given.
            ModelRefused: Triton cannot load it.
            ServerUnavailable: the adapter is loading or unloading it, or Triton is away.
            BudgetExceeded: Triton has not loaded it in time, and goes on.
        """
        known = self._of_ours(name)
        if known is None:
            try:
                async with asyncio.timeout(self._load_seconds):
                    await self._server.load_other(name, overrides)
            except TimeoutError:
                cause = self._server.problem or f"Triton has not loaded the model within {self._load_seconds:g} s, and goes on"
                raise BudgetExceeded(cause) from None
            return
        if overrides:
            raise InvalidRequest(f"the model {name!r} was loaded by ModelMesh or a front of the adapter: it has no overrides")
        if not known.is_serving:
            raise ServerUnavailable(f"the model {name!r} is being {'unloaded' if known.is_going else 'loaded'}")

    async def unload(self, name: str, *, has_dependents: bool) -> None:
        """
        Unload a model, of the adapter or of others, and return when it holds no memory. One that is unknown is fine.

        With `has_dependents` the models that an ensemble is made of go, too, unless they were loaded by name.

        Raises:
            InvalidRequest: no model can have this name.
            UnloadUnfinished: it holds memory still.
            ServerError: Triton does not unload it.
        """
        if self._of_ours(name) is not None:
            await self._models.unload(name)
            return
        try:
            async with asyncio.timeout(self._unload_seconds):
                await self._server.unload_other(name, has_dependents=has_dependents)
        except TimeoutError:
            raise UnloadUnfinished(f"{self._server.obstacle(name)}; the model was not freed within {self._unload_seconds:g} s") from None

    def _of_ours(self, name: str) -> KnownModel | None:
        problem = id_problem(name, self._reserved_ids)
        if problem is not None:
            raise InvalidRequest(problem)
        return self._find(name)
