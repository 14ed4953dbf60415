"""
The table of models as a front sees it: by the names that its callers gave, and never waiting for anybody.

Each model is coming, serving or going, and nothing else. `RepositoryCalls` knows them by Triton's names, and beside them the models
that others have put where Triton finds them. Of those nothing is kept: Triton that restarts has none of them, and their memory is
booked nowhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from adapter.errors import BudgetExceeded, InvalidRequest, ServerUnavailable, UnloadUnfinished
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.model import PROBE, Named, Overrides, ServerModel, id_problem
from adapter.ports import OtherModels, Ports
from adapter.serving import KnownModel, Models

INDEX_SECONDS = 30.0
"""Longest wait for a list."""


class Known:
    """Looks into the registry alone."""

    def __init__(self, registry: Registry, ports: Ports, obstacle: Callable[[], str | None]) -> None:
        """`obstacle`: why no model can be loaded or asked now."""
        self._registry = registry
        self._ports = ports
        self._obstacle = obstacle
        self._by_name: dict[str, Model] = {}
        """As of `_changes`."""
        self._changes = -1

    def known(self) -> list[KnownModel]:
        """As `Models.known`. Raises ServerUnavailable."""
        self._check_complete()
        return [self._seen(model) for _, model in sorted(self._names().items())]

    def find(self, name: str) -> KnownModel | None:
        """As `Models.find`. Raises ServerUnavailable."""
        return self._found(self._names().get(name))

    def find_id(self, model_id: str) -> KnownModel | None:
        """As `find`, by Triton's name. Raises ServerUnavailable."""
        return self._found(self._registry.find(model_id))

    def _found(self, model: Model | None) -> KnownModel | None:
        if model is not None and _is_anything(model):
            return self._seen(model)
        self._check_complete()
        return None

    def _check_complete(self) -> None:
        """Of an earlier process's models it is known only that there were some."""
        if not self._registry.is_complete and any(self._registry.find(model_id) is None for model_id in self._ports.journal.records):
            raise ServerUnavailable(str(self._obstacle()))

    def _names(self) -> dict[str, Model]:
        """A name can only come or go with a change in the registry."""
        if self._changes != self._registry.changes:
            self._by_name = {_name(model): model for model in self._registry if _is_anything(model)}
            self._changes = self._registry.changes
        return self._by_name

    def _seen(self, model: Model) -> KnownModel:
        named, is_going = _named(model), model.is_going
        return KnownModel(
            model_id=model.model_id,
            name=_name(model),
            url=named.url if named else str(self._ports.repository.folder / model.model_id),
            is_serving=not is_going and model.state is State.LOADED,
            is_coming_back=not is_going and model.model_id in self._registry.lost,
            is_going=is_going,
            placed=model.placed,
        )


def _is_anything(model: Model) -> bool:
    """Not an unload of something that was never there, or that is gone."""
    return model.state is not State.ABSENT or (model.operation is not None and model.operation.kind == "load")


def _name(model: Model) -> str:
    named = _named(model)
    return named.name if named else model.model_id


def _named(model: Model) -> Named | None:
    """What a load is about to bring counts more than what it replaces."""
    operation = model.operation
    return operation.spec.named if operation is not None and operation.spec is not None else model.named


@dataclass(eq=False)
class RepositoryCalls:
    """Triton's model repository for callers who know Triton's names: the adapter's own models, and those of others."""

    models: Models
    """The adapter's own."""
    server: OtherModels
    load_seconds: float
    """Longest wait for a load of others' models."""
    unload_seconds: float
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
            return
        try:
            async with asyncio.timeout(self.unload_seconds):
                await self.server.unload_other(name, has_dependents=has_dependents)
        except TimeoutError:
            raise UnloadUnfinished(f"{self.server.obstacle(name)}; the model was not freed within {self.unload_seconds:g} s") from None

    def _of_ours(self, name: str) -> KnownModel | None:
        problem = id_problem(name, self.reserved_ids)
        if problem is not None:
            raise InvalidRequest(problem)
        return self.models.find_id(name)
