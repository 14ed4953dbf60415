"""
Triton's model repository for callers who know Triton's names: the adapter's own models, and beside them those that others have put
where Triton finds them. Of those nothing is kept: Triton that restarts has none of them, and their memory is booked nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from adapter.errors import BudgetExceeded, InvalidRequest, ServerUnavailable
from adapter.lifecycle.worker import Worker
from adapter.model import PROBE, Overrides, ServerModel, id_problem
from adapter.ports import ModelServer
from adapter.serving import KnownModel

if TYPE_CHECKING:
    from adapter.lifecycle.lifecycle import RuntimeLifecycle

INDEX_SECONDS = 30.0
"""Longest wait for a list."""


@dataclass(eq=False)
class RepositoryCalls:
    """Triton's model repository for callers who know Triton's names: the adapter's own models, and those of others."""

    models: RuntimeLifecycle
    """The adapter's own."""
    server: ModelServer
    load_seconds: float
    """Longest wait for a load of others' models."""
    worker: Worker
    reserved_ids: Collection[str]
    """Names of the adapter's folders."""

    async def index(self) -> Sequence[ServerModel]:
        """
        All rows of Triton's index but those of the adapter's own looks.

        Raises:
            ServerUnavailable: it is not to be had soon.
        """
        try:
            async with asyncio.timeout(INDEX_SECONDS):
                rows = await self.server.index()
        except TimeoutError:
            raise ServerUnavailable(self.server.problem or f"Triton has not listed its models within {INDEX_SECONDS:g} s") from None
        return [row for owned in rows.values() for row in owned if not row.name.startswith(PROBE)]

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
                async with asyncio.timeout(self.load_seconds):
                    await self.server.load_other(name, overrides)
            except TimeoutError:
                cause = self.server.problem or f"Triton has not loaded the model within {self.load_seconds:g} s, and goes on"
                raise BudgetExceeded(cause) from None
        elif overrides:
            raise InvalidRequest(f"the model {name!r} was loaded by ModelMesh or a front of the adapter: it has no overrides")
        elif not known.is_serving:
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
            await self.models.unload(name)
        else:
            await self.worker.free_memory(name, has_dependents=has_dependents)

    def _of_ours(self, name: str) -> KnownModel | None:
        problem = id_problem(name, self.reserved_ids)
        if problem is not None:
            raise InvalidRequest(problem)
        return self.models.find_id(name)
