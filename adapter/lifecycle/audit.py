"""
Whether registry, Triton's index and the repository folder agree: a metric, and a log line when the picture changes.

Looks when it is told to (after a take-over, after a return of Triton) and once a minute while nothing is under way; sooner
while there is a disagreement, so that the metric does not outlive the trouble. Never acts. A look is one call of the index,
which costs all others (it holds the lock that inference needs): it can wait for as long as the server finds right.

A look during which anything happened in the registry proves nothing, and is made again, after a rest that is many times as
long as the look through the folder took: with thousands of models that is work.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection
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
AGAIN_SECONDS = 1.0
"""After a look that proved nothing, or that could not be made."""
REST_TIMES = 30
"""As long as a look through the folder, it rests before another one, where it proved nothing; at most `PAUSE_SECONDS`."""
AT_ONCE = 500
"""Ids that are compared before other tasks have their turn on the loop."""
NAMED = 5
"""Models of a kind that are named in the log."""

Picture = dict[Drift, list[str]]
"""Kind of disagreement → model ids."""

AUDIT = "audit"
"""Name of the task that runs as long as the adapter does."""

log = structlog.stdlib.get_logger(__name__)


class Audit:
    """One task that looks, and tells."""

    def __init__(self, *, registry: Registry, ports: Ports, is_open: Callable[[], bool], reserved_ids: Collection[str]) -> None:
        """`is_open`: whether the view of Triton is made; during a take-over or a purge there is nothing to compare."""
        self._registry = registry
        self._server = ports.server
        self._repository = ports.repository
        self._is_open = is_open
        self._reserved_ids = reserved_ids
        self._is_wanted = asyncio.Event()
        self._picture: Picture = {}
        self._rest_seconds = 0.0
        self._task: asyncio.Task[None] | None = None
        _show({})

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.create_task(self._run(), name=AUDIT)

    def want(self) -> None:
        """Look as soon as that can be done, also while something is under way."""
        self._is_wanted.set()

    async def close(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _run(self) -> None:
        is_wanted, has_looked = False, True
        while True:
            if has_looked:
                await set_within(self._is_wanted, DRIFT_PAUSE_SECONDS if self._picture else PAUSE_SECONDS)
                is_wanted = self._is_wanted.is_set()
                self._is_wanted.clear()
            else:
                await asyncio.sleep(max(AGAIN_SECONDS, self._rest_seconds))
            has_looked = await self._has_looked(is_wanted=is_wanted)

    async def _has_looked(self, *, is_wanted: bool) -> bool:
        """One look, if there may be one; False when it must be made again soon."""
        may_look = (is_wanted or not self._registry.operations()) and self._is_open() and self._server.problem is None
        try:
            picture = await self._look() if may_look else None
        except AdapterError as error:
            log.debug("inventory.skipped", cause=error.text)
            return False
        except Exception:
            log.exception("inventory.crashed")
            return True  # a defect that would come again each second
        if picture is not None:
            self._tell(picture)
        return picture is not None

    async def _look(self) -> Picture | None:
        """What they disagree on; None when something happened meanwhile."""
        before = self._registry.changes
        rows = by_owner(await self._server.index(can_wait=True))
        if self._registry.changes != before:
            return None
        clock = asyncio.get_running_loop().time
        began = clock()
        placed = await self._repository.inventory()
        self._rest_seconds = min(REST_TIMES * (clock() - began), PAUSE_SECONDS)
        if self._registry.changes != before or not self._is_open():
            return None
        states = {model.model_id: model.state.value for model in self._registry if model.operation is None}
        under_way = {operation.model.model_id for operation in self._registry.operations()}
        picture: Picture = defaultdict(list)
        others = {model_id for model_id in {*rows, *placed} - states.keys() if self._repository.is_of_others(model_id)}
        for number, model_id in enumerate(sorted({*states, *rows, *placed} - under_way - others)):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if id_problem(model_id, self._reserved_ids) is None and (
                drift := drift_of(model_id, states.get(model_id), rows.get(model_id, ()), placed.get(model_id))
            ):
                picture[drift].append(model_id)
        return dict(picture)

    def _tell(self, picture: Picture) -> None:
        _show(picture)
        if picture != self._picture:
            if picture:
                log.warning("inventory.drift", **{kind: some([repr(name) for name in names], NAMED) for kind, names in picture.items()})
            else:
                log.info("inventory.agrees")
        self._picture = picture


def _show(picture: Picture) -> None:
    for kind in get_args(Drift):
        INVENTORY_DRIFT.labels(kind).set(len(picture.get(kind, ())))
