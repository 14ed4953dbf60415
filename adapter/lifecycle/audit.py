"""
Whether registry, Triton's index and the repository folder agree: a metric, and a log line when the picture changes.

Looks when it is told to (after a take-over, after a return of Triton) and once a minute while nothing is under way; sooner
while there is a disagreement, so that the metric does not outlive the trouble. Never acts. A look is one call of the index,
which costs all others (it holds the lock that inference needs): it can wait for as long as the server finds right.

A look during which anything happened in the registry proves nothing, and is made again, but not at once: with thousands of models
it is work.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import get_args

import structlog

from adapter.errors import AdapterError, some
from adapter.inventory import Drift, by_owner, drift_of
from adapter.lifecycle.registry import Registry
from adapter.model import id_problem
from adapter.ports import Ports
from adapter.telemetry.metrics import INVENTORY_DRIFT
from adapter.waits import set_within

PAUSE_SECONDS = 60.0
DRIFT_PAUSE_SECONDS = 5.0
"""After a look that found a disagreement."""
AGAIN_SECONDS = 15.0
"""After a look that proved nothing, or that could not be made."""
AT_ONCE = 500
"""Ids that are compared before other tasks have their turn on the loop."""
NAMED = 5
"""Models of a kind that are named in the log."""

Picture = dict[Drift, list[str]]
"""Kind of disagreement → model ids."""

AUDIT = "audit"
"""Name of the task that runs as long as the adapter does."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class Audit:
    """One task that looks, and tells."""

    registry: Registry
    ports: Ports
    is_open: Callable[[], bool]
    """Whether the view of Triton is made; during a take-over or a purge there is nothing to compare."""
    reserved_ids: Collection[str]
    _picture: Picture = field(default_factory=dict)

    def __post_init__(self) -> None:
        _show({})

    async def run(self) -> None:
        """Look, for as long as the adapter runs."""
        pause, is_wanted = PAUSE_SECONDS, False
        while True:
            await set_within(self.registry.news, pause)
            is_wanted |= self.registry.news.is_set()
            self.registry.news.clear()
            pause = AGAIN_SECONDS
            if (self.registry.operations() and not is_wanted) or not self.is_open() or self.ports.server.problem is not None:
                continue
            try:
                if await self._has_looked():
                    pause, is_wanted = DRIFT_PAUSE_SECONDS if self._picture else PAUSE_SECONDS, False
            except AdapterError as error:
                log.debug("inventory.skipped", cause=error.text)
            except Exception:
                log.exception("inventory.crashed")
                pause = PAUSE_SECONDS  # a defect that would come again

    async def _has_looked(self) -> bool:
        """Tell what they disagree on. False: something happened meanwhile, so the look proves nothing."""
        before = self.registry.changes
        rows = by_owner(await self.ports.server.index(can_wait=True))
        if self.registry.changes != before:
            return False
        placed = await self.ports.repository.inventory()
        if self.registry.changes != before or not self.is_open():
            return False
        states = {model.model_id: model.state.value for model in self.registry if model.operation is None}
        under_way = {operation.model.model_id for operation in self.registry.operations()}
        picture: Picture = defaultdict(list)
        for number, model_id in enumerate(sorted({*states, *rows, *placed} - under_way)):
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
        return True


def _show(picture: Picture) -> None:
    for kind in get_args(Drift):
        INVENTORY_DRIFT.labels(kind).set(len(picture.get(kind, ())))
