"""
What Triton's index and the folder say of the models in the table: which are lost, and whether all agree.

A comparison never acts: a metric, and a log line when the picture changes. One during which anything has happened proves nothing.
Each look is one call of the index, which costs all others (it holds the lock that inference needs).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import get_args

import structlog

from adapter.errors import some
from adapter.lifecycle.background import Background
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.model import Drift, Placed, Rows, drift_of, id_problem, is_untouched
from adapter.ports import Ports
from adapter.telemetry.metrics import INVENTORY_DRIFT
from adapter.waits import by_turns

LOOK_SECONDS, DRIFT_SECONDS, BUSY_SECONDS = 60.0, 5.0, 15.0
"""
Between looks; after one that has found a disagreement, since the metric shall not outlive the trouble; and after one that proved
nothing.
"""
NAMED = 5
"""Models of a kind that are named in the log."""

Picture = dict[Drift, list[str]]
"""Kind of disagreement → model ids."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class Looks:
    """Looks while the gate is open."""

    registry: Registry
    ports: Ports
    background: Background
    reserved_ids: Collection[str]
    other: int = 0
    """The last generation of Triton that is certainly another process than the one before."""
    _generation: int = 0
    """Of the last look."""
    _picture: Picture = field(default_factory=dict)

    def __post_init__(self) -> None:
        _show({})

    def is_suspect(self, model: Model) -> bool:
        """Triton has returned since it was known to have the model; what an operation holds is looked at when that has ended."""
        return model.state is State.LOADED and model.operation is None and model.generation < self.registry.generation

    async def look(self) -> float:
        """
        Find models that are lost; where none is, and nothing happens meanwhile, compare. Returns seconds until the next look.

        Raises:
            AdapterError: Triton or the folder does not tell.
        """
        generation, changes = self.registry.generation, self.registry.changes
        suspects = {model: model.changes for model in self.registry.all_in(State.LOADED) if self.is_suspect(model)}
        is_quiet = not self.registry.operations() and self.ports.server.problem is None
        if not suspects and not is_quiet and generation == self._generation:
            return BUSY_SECONDS
        rows = await self.ports.server.index()
        if suspects or self.ports.server.problem is not None:
            await self._judge(suspects, generation, rows)
        self._generation = generation
        if not is_quiet or self.registry.changes != changes:
            return BUSY_SECONDS
        placed = await self.ports.repository.inventory()
        if self.registry.changes != changes:
            return BUSY_SECONDS
        return await self._compare(rows, placed)

    async def _judge(self, suspects: Mapping[Model, int], generation: int, rows: Rows) -> None:
        """
        What an operation holds meanwhile stays suspect, and after a return of Triton what was not lost before.

        Asked of a Triton that is ours: one with another repository has lost nothing, and can be given nothing.
        """
        missing = [model for model in suspects if not any(row.state for row in rows.get(model.model_id, ()))]
        placed: Mapping[str, str] = {}
        if missing or self.ports.server.problem is not None:
            await self.ports.server.verify()
            placed = await self.ports.repository.identities([model.model_id for model in missing])
        lost = {
            model
            for model in missing
            if is_untouched(rows.get(model.model_id, ())) or (model.model_id not in rows and model.generation < self.other)
        }
        if lost:
            self.ports.server.confirm_restart()
            log.warning("restore.begun", models=len(lost))
        async for model in by_turns(sorted(suspects, key=lambda model: -model.confirmed)):
            if not self.background.is_on:
                return
            if model.operation is not None or model.changes != suspects[model]:
                continue
            if model in lost:
                self.background.lose(model, placed.get(model.model_id))
            elif generation == self.registry.generation:
                model.generation = generation
        self.background.go_on()

    async def _compare(self, rows: Rows, placed: Mapping[str, Placed]) -> float:
        states = {model.model_id: model.state.value for model in self.registry}
        picture: Picture = defaultdict(list)
        async for model_id in by_turns(sorted({*states, *rows, *placed})):
            is_ours = model_id in states or not self.ports.repository.is_of_others(model_id)
            drift = drift_of(model_id, states.get(model_id), rows.get(model_id, ()), placed.get(model_id))
            if drift and is_ours and id_problem(model_id, self.reserved_ids) is None:
                picture[drift].append(model_id)
        _show(picture)
        if picture and picture != self._picture:
            log.warning("inventory.drift", **{kind: some([repr(name) for name in names], NAMED) for kind, names in picture.items()})
        elif picture != self._picture:
            log.info("inventory.agrees")
        self._picture = picture
        return DRIFT_SECONDS if picture else LOOK_SECONDS


def _show(picture: Picture) -> None:
    for kind in get_args(Drift):
        INVENTORY_DRIFT.labels(kind).set(len(picture.get(kind, ())))
