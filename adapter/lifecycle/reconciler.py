"""
Makes models what they should be when no call does: restores what Triton has lost, frees what an undo has left.

- After each return of Triton the index is asked. A model that was LOADED from before the question on, and of which Triton has only
  the directory, is LOST. A model that an operation holds meanwhile is looked at when that has ended.
- A LOST model is loaded again from the files that are placed: last confirmed first, a few at a time, calls first. A model whose
  files are not as they were is taken down, and so is one whose restore fails.
- A FAILED model is taken down again, 64 at a time, until nothing of it is left.

ModelMesh cannot be told that a model is gone, so it is told nothing. One pass over thousands of models takes 20–75 ms, so models
are visited only where something has happened to them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

import structlog

from adapter.errors import AdapterError
from adapter.inventory import by_owner, is_untouched
from adapter.lifecycle.operation import Operation
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.lifecycle.worker import Worker
from adapter.ports import Ports
from adapter.waits import doubling, set_within

TAKEN_DOWN_AT_ONCE = 64
"""Thousands at once would hold up the loop, the folder's threads and Triton's unloads for all others."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0
"""Before a FAILED model is taken down again."""
FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS = 0.5, 10.0
"""Between questions that fail, for the index or the folder."""
LOST_AT_ONCE = 100
"""Models that are found lost before other tasks have their turn on the loop."""
WATCH = "reconciler"
LOOK = "look for lost models"
"""Names of tasks; the first one runs as long as the adapter does."""

Suspects = dict[str, tuple[Model, int]]
"""Model id → a model that Triton may have lost, and its number of changes."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class Reconciler:
    """Works while the gate is open."""

    registry: Registry
    ports: Ports
    worker: Worker
    at_once: int
    """Most restores under way."""
    _is_on: bool = False
    _is_over: bool = False
    looking: asyncio.Task[None] | None = None
    """To be ended with the adapter."""
    _has_news: asyncio.Event = field(default_factory=asyncio.Event)
    """Triton has returned: a look that pauses goes on."""
    _other: int = 0
    """The last generation of Triton that is certainly another process than the one before."""
    _calls: Counter[str] = field(default_factory=Counter)
    """Calls that wait to begin an operation, by model id."""
    _lost: int = 0
    """Models that were LOST in this restore, which is over when none is left and no look is due."""

    @property
    def notice(self) -> str | None:
        """How far a restore is, for `/readyz`: `restoring 7 of 10`; None. From any thread."""
        pending = len(self.registry.lost)
        total = max(self._lost, pending)
        return f"restoring {total - pending} of {total}" if self._is_on and total else None

    def begin(self) -> None:
        """The gate is open: after a take-over or a purge, done or failed."""
        if self._is_over:
            return
        self._is_on = True
        self._lost = max(self._lost, len(self.registry.lost))
        self._look_soon()
        self.go_on()

    def end(self, *, for_good: bool = False) -> None:
        """A purge or a drain has come: nothing is begun any more; what is under way is stopped by the caller."""
        for model in self.registry.all_in(State.LOST):
            self.registry.count_lost(model, "ended")
        self._is_on = False
        self._is_over |= for_good
        self._lost = 0

    @contextmanager
    def hold_restores_of(self, model_id: str) -> Iterator[None]:
        """While inside, a call waits to begin an operation of this id: no restore of it begins."""
        self._calls[model_id] += 1
        try:
            yield
        finally:
            self._calls[model_id] -= 1
            if not self._calls[model_id]:
                del self._calls[model_id]
            self.go_on()

    def ended(self, operation: Operation) -> None:
        """The id of an operation is free again."""
        model = operation.model
        if model.state is State.FAILED and not model.is_paused:
            self._pause(model)
        if _is_suspect(model, self.registry.generation):
            self._look_soon()
        self.go_on()

    def go_on(self) -> None:
        """Begin what can begin now."""
        if not self._is_on:
            return
        operations = self.registry.operations()
        places = TAKEN_DOWN_AT_ONCE - sum(operation.kind == "unload" for operation in operations)
        if places > 0:
            failed = (model for model in self.registry.all_in(State.FAILED) if not model.is_paused and self._is_free(model))
            for model in islice(failed, places):
                self.worker.unload(model.model_id)
        places = self.at_once - sum(operation.kind == "restore" and not operation.is_ending for operation in operations)
        if places > 0:
            lost = (model for model in self.registry.all_in(State.LOST) if self._is_free(model))
            for model in heapq.nlargest(places, lost, key=lambda model: model.confirmed):
                self.worker.restore(model)
        if self.looking is None and self._lost and not self.registry.lost:
            log.info("restore.ended", models=self._lost)
            self._lost = 0

    def _is_free(self, model: Model) -> bool:
        return model.operation is None and model.model_id not in self._calls

    def _pause(self, model: Model) -> None:
        """Leave a FAILED model alone, each time for longer."""
        model.is_paused = True
        model.pause_seconds = min(2 * model.pause_seconds or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        log.info("model.failed", model_id=model.model_id, again_in_seconds=model.pause_seconds)
        asyncio.get_running_loop().call_later(model.pause_seconds, self._go_on_with, model)

    def _go_on_with(self, model: Model) -> None:
        model.is_paused = False
        self.go_on()

    # ---- what Triton has lost

    async def watch(self) -> None:
        """See each return of Triton, for as long as the adapter runs."""
        while True:
            is_another = await self.ports.server.returned()
            log.info("triton.returned", is_another_process=is_another)
            self.registry.generation += 1
            if is_another:
                self._other = self.registry.generation
            self._has_news.set()
            self._look_soon()

    def _look_soon(self) -> None:
        if self._is_on and self.looking is None and self._suspects():
            self.looking = asyncio.create_task(self._look(), name=LOOK)

    def _suspects(self) -> Suspects:
        generation, loaded = self.registry.generation, self.registry.all_in(State.LOADED)
        return {model.model_id: (model, model.changes) for model in loaded if _is_suspect(model, generation)}

    async def _look(self) -> None:
        """Until no model is suspect, or the gate is shut."""
        told, pauses = None, doubling(FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS)
        while self._is_on and (asked := self._suspects()):
            self._has_news.clear()
            try:
                await self._look_once(asked)
            except Exception as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("restore.blind", cause=told, exc_info=not isinstance(error, AdapterError))
                await set_within(self._has_news, next(pauses))
        self.looking = None
        self.go_on()
        self.registry.news.set()

    async def _look_once(self, asked: Suspects) -> None:
        """
        Find those that are lost. What an operation holds meanwhile stays suspect, and after a return of Triton what was not lost before.

        Asked of a Triton that is ours: one with another repository has lost nothing, and can be given nothing.
        """
        generation = self.registry.generation
        rows = by_owner(await self.ports.server.index(asked))
        missing = {model_id for model_id in asked if not any(row.state for row in rows.get(model_id, ()))}
        lost: set[str] = set()
        placed: Mapping[str, str] = {}
        if missing:
            await self.ports.server.verify()
            placed = await self.ports.repository.identities(missing)
            gone = {model_id for model_id in missing - rows.keys() if asked[model_id][0].generation < self._other}
            lost = gone | {model_id for model_id in missing if is_untouched(rows.get(model_id, ()))}
        if lost:
            self.ports.server.confirm_restart()
            log.warning("restore.begun", models=len(lost))
        newest_first = sorted(asked.values(), key=lambda suspect: -suspect[0].confirmed)
        for number, (model, changes) in enumerate(newest_first):
            if number % LOST_AT_ONCE == LOST_AT_ONCE - 1:
                self.go_on()
                await asyncio.sleep(0)
            if not self._is_on:
                return
            if model.operation is not None or model.changes != changes:
                continue
            if model.model_id in lost:
                self._lose(model, placed.get(model.model_id))
            elif generation == self.registry.generation:
                model.generation = generation

    def _lose(self, model: Model, placed: str | None) -> None:
        self._lost += 1
        self.registry.move(model, State.LOST)
        if placed is None or placed != model.placed:
            cause = "its directory is gone" if placed is None else "its directory is not the one that was placed"
            log.warning("restore.failed", model_id=model.model_id, outcome="refused", cause=cause)
            self.registry.count_lost(model, "refused")
            self.worker.unload(model.model_id)


def _is_suspect(model: Model, generation: int) -> bool:
    """Triton has returned since it was known to have the model; what an operation holds is looked at when that has ended."""
    return model.state is State.LOADED and model.operation is None and model.generation < generation
