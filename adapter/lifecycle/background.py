"""
Operations that no call asks for: LOST models are loaded again, FAILED ones are taken down.

A LOST model is loaded from the files that are placed: last confirmed first, a few at a time, calls first. A FAILED model is taken
down again, 64 at a time, until nothing of it is left. One pass over thousands of models takes 20–75 ms, so only those two states
are visited, where something has happened.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice

import structlog

from adapter.errors import InvalidModel
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.lifecycle.worker import Worker

TAKEN_DOWN_AT_ONCE = 64
"""Thousands at once would hold up the loop, the folder's threads and Triton's unloads for all others."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0
"""Before a FAILED model is taken down again."""

log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class Background:
    """Begins them while it is on."""

    registry: Registry
    worker: Worker
    at_once: int
    """Most restores under way."""
    is_on: bool = False
    """The gate is open."""
    is_over: bool = False
    """The adapter ends: nothing is begun any more."""
    _calls: Counter[str] = field(default_factory=Counter)
    """Calls that wait to begin an operation, by model id."""
    _lost: int = 0
    """Models that were LOST in this restore, which is over when none is left."""

    @property
    def notice(self) -> str | None:
        """How far a restore is, for `/readyz`: `restoring 7 of 10`; None. From any thread."""
        pending = len(self.registry.lost)
        total = max(self._lost, pending)
        return f"restoring {total - pending} of {total}" if self.is_on and total else None

    def begin(self) -> None:
        """The gate is open: after a take-over or a purge, done or failed."""
        self.is_on = not self.is_over
        self._lost = max(self._lost, len(self.registry.lost))
        self.go_on()

    def end(self, *, for_good: bool = False) -> None:
        """A purge or a drain has come; what is under way is stopped by the caller."""
        for model in self.registry.all_in(State.LOST):
            self.registry.count_lost(model, "ended")
        self.is_on, self._lost = False, 0
        self.is_over |= for_good

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

    def go_on(self) -> None:
        """Begin what can begin now."""
        if not self.is_on:
            return
        operations = self.registry.operations()
        places = TAKEN_DOWN_AT_ONCE - sum(operation.kind == "unload" for operation in operations)
        if places > 0:
            failed = (model for model in self.registry.all_in(State.FAILED) if not model.is_paused and self._is_free(model))
            for model in islice(failed, places):
                self.worker.unload(model.model_id, is_background=True)
        places = self.at_once - sum(operation.kind == "restore" and not operation.is_ending for operation in operations)
        if places > 0:
            lost = (model for model in self.registry.all_in(State.LOST) if self._is_free(model))
            for model in heapq.nlargest(places, lost, key=lambda model: model.confirmed):
                self.worker.restore(model)
        if self._lost and not self.registry.lost:
            log.info("restore.ended", models=self._lost)
            self._lost = 0

    def pause(self, model: Model) -> None:
        """Leave a FAILED model alone, each time for longer."""
        model.is_paused = True
        model.pause_seconds = min(2 * model.pause_seconds or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
        log.info("model.failed", model_id=model.model_id, again_in_seconds=model.pause_seconds)
        asyncio.get_running_loop().call_later(model.pause_seconds, self._go_on_with, model)

    def lose(self, model: Model, placed: str | None) -> None:
        """Triton has lost it. `placed`: its directory now; where that is not the one that was placed, the model is taken down."""
        self._lost += 1
        self.registry.move(model, State.LOST)
        if placed != model.placed:
            self.worker.count_failed(model, InvalidModel("its directory is not the one that was placed"))
            self.worker.unload(model.model_id, is_background=True)

    def _is_free(self, model: Model) -> bool:
        return model.operation is None and model.model_id not in self._calls

    def _go_on_with(self, model: Model) -> None:
        model.is_paused = False
        self.go_on()
