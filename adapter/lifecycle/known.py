"""
The table of models as a front sees it: by the names that its callers gave, and never waiting for anybody.

Each model is coming, serving or going, and nothing else.
"""

from __future__ import annotations

from adapter.errors import ServerUnavailable
from adapter.lifecycle.operation import Model
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.states import State
from adapter.lifecycle.takeover import Takeover
from adapter.model import Named
from adapter.ports import Ports
from adapter.serving import KnownModel


class Known:
    """Looks into the registry alone."""

    def __init__(self, *, registry: Registry, ports: Ports, takeover: Takeover) -> None:
        self._registry = registry
        self._server = ports.server
        self._journal = ports.journal
        self._folder = ports.repository.folder
        self._takeover = takeover
        self._by_name: dict[str, Model] = {}
        """As of `_changes`."""
        self._changes = -1

    @property
    def obstacle(self) -> str | None:
        """Why no model can be loaded or asked now: Triton, the gate, or a take-over that has failed and is made again soon."""
        return self._server.problem or self._takeover.obstacle or (None if self._registry.is_complete else self._takeover.problem)

    def all(self) -> list[KnownModel]:
        """As `Models.known`."""
        self._check_complete()
        return [self._seen(model) for _, model in sorted(self._names().items())]

    def find(self, name: str) -> KnownModel | None:
        """As `Models.find`."""
        return self._seen_or_none(self._names().get(name))

    def find_id(self, model_id: str) -> KnownModel | None:
        """As `find`, by Triton's name."""
        model = self._registry.find(model_id)
        return self._seen_or_none(model if model is not None and _is_anything(model) else None)

    def _seen_or_none(self, model: Model | None) -> KnownModel | None:
        if model is None:
            self._check_complete()
            return None
        return self._seen(model)

    def _check_complete(self) -> None:
        """Of an earlier process's models it is known only that there were some."""
        if self._registry.is_complete:
            return
        if any(self._registry.find(model_id) is None for model_id in self._journal.records):
            raise ServerUnavailable(self.obstacle or "the models of an earlier process are not taken over yet")

    def _names(self) -> dict[str, Model]:
        """A name can only come or go with a change in the registry."""
        if self._changes != self._registry.changes:
            self._by_name = {_name(model): model for model in self._registry if _is_anything(model)}
            self._changes = self._registry.changes
        return self._by_name

    def _seen(self, model: Model) -> KnownModel:
        named = _named(model)
        is_serving = not model.is_going and model.state is State.LOADED
        return KnownModel(
            model_id=model.model_id,
            name=_name(model),
            url=named.url if named else str(self._folder / model.model_id),
            is_serving=is_serving,
            is_coming=not model.is_going and not is_serving,
            is_coming_back=not model.is_going and (model.state is State.LOST or (model.operation is not None and model.operation.is_again)),
            is_going=model.is_going,
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
    if operation is not None and operation.kind == "load" and operation.spec is not None:
        return operation.spec.named
    return model.named
