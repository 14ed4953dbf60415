"""
What Triton's index and the folder say of the models in the table: which are lost, and whether all agree.

A comparison never acts: a metric, and a log line when the picture changes. It is one call of the index, which costs all others (it
holds the lock that inference needs): it waits for as long as the server finds right.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import get_args

import structlog

from adapter.errors import some
from adapter.lifecycle.background import Background
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.model import Drift, by_owner, drift_of, id_problem, is_untouched
from adapter.ports import Ports
from adapter.telemetry.metrics import INVENTORY_DRIFT

COMPARE_SECONDS, DRIFT_SECONDS, BUSY_SECONDS = 60.0, 5.0, 15.0
"""
Between comparisons; after one that has found a disagreement, since the metric shall not outlive the trouble; and after one that could
not be made, or that proved nothing.
"""
AT_ONCE = 100
"""Models that are gone through before other tasks have their turn on the loop."""
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
    _picture: Picture = field(default_factory=dict)

    def __post_init__(self) -> None:
        _show({})

    def is_suspect(self, model: Model) -> bool:
        """Triton has returned since it was known to have the model; what an operation holds is looked at when that has ended."""
        return model.state is State.LOADED and model.operation is None and model.generation < self.registry.generation

    def suspects(self) -> dict[str, tuple[Model, int]]:
        """Model id → a model that Triton may have lost, and its number of changes."""
        return {model.model_id: (model, model.changes) for model in self.registry.all_in(State.LOADED) if self.is_suspect(model)}

    async def look(self) -> None:
        """
        Find those that are lost. What an operation holds meanwhile stays suspect, and after a return of Triton what was not lost before.

        Asked of a Triton that is ours: one with another repository has lost nothing, and can be given nothing.
        """
        asked, generation = self.suspects(), self.registry.generation
        rows = by_owner(await self.ports.server.index(asked))
        missing = {model_id for model_id in asked if not any(row.state for row in rows.get(model_id, ()))}
        lost: set[str] = set()
        placed: Mapping[str, str] = {}
        if missing or self.ports.server.problem is not None:
            await self.ports.server.verify()
            placed = await self.ports.repository.identities(missing)
            gone = {model_id for model_id in missing - rows.keys() if asked[model_id][0].generation < self.other}
            lost = gone | {model_id for model_id in missing if is_untouched(rows.get(model_id, ()))}
        if lost:
            self.ports.server.confirm_restart()
            log.warning("restore.begun", models=len(lost))
        newest_first = sorted(asked.values(), key=lambda suspect: -suspect[0].confirmed)
        for number, (model, changes) in enumerate(newest_first):
            if number % AT_ONCE == AT_ONCE - 1:
                self.background.go_on()
                await asyncio.sleep(0)
            if not self.background.is_on:
                return
            if model.operation is not None or model.changes != changes:
                continue
            if model.model_id in lost:
                self.background.lose(model, placed.get(model.model_id))
            elif generation == self.registry.generation:
                model.generation = generation
        self.background.go_on()

    async def compare(self) -> float:
        """
        Whether all agree, if nothing happens meanwhile; returns seconds until the next time.

        Raises:
            AdapterError: Triton or the folder does not tell.
        """
        before = self.registry.changes
        if self.registry.operations() or self.ports.server.problem is not None:
            return BUSY_SECONDS
        rows = by_owner(await self.ports.server.index(can_wait=True))
        if self.registry.changes != before:
            return BUSY_SECONDS
        placed = await self.ports.repository.inventory()
        if self.registry.changes != before:
            return BUSY_SECONDS
        states = {model.model_id: model.state.value for model in self.registry}
        picture: Picture = defaultdict(list)
        for number, model_id in enumerate(sorted({*states, *rows, *placed})):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
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
        return DRIFT_SECONDS if picture else COMPARE_SECONDS


def _show(picture: Picture) -> None:
    for kind in get_args(Drift):
        INVENTORY_DRIFT.labels(kind).set(len(picture.get(kind, ())))
