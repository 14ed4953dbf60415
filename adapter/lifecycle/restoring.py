"""
Models that Triton has lost are loaded again from the files that are placed.

ModelMesh cannot be told that a model is gone. So what `losses` finds becomes LOST, and a LOST model is restored by an
operation like any other, last confirmed first, a few at a time; calls go first. What cannot be restored becomes ABSENT.
Triton may die again meanwhile: over two deaths in one restore the rest is given up, for nobody can tell what kills it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import structlog

from adapter.errors import Superseded
from adapter.lifecycle.losses import Losses
from adapter.lifecycle.operation import Model, Operation
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.states import Event, State
from adapter.lifecycle.turns import Turns
from adapter.ports import Neighbours
from adapter.telemetry.metrics import RESTORE_PENDING, RESTORES

MOST_CRASHES = 2
"""After so many deaths of Triton within one restore nothing more is restored."""
ABANDONED_AT_ONCE = 64
"""So many models that are given up are taken down at a time."""

log = structlog.stdlib.get_logger(__name__)


class Restoring:
    """Brings LOST models back to LOADED, in the background."""

    def __init__(
        self,
        *,
        registry: Registry,
        neighbours: Neighbours,
        at_once: int,
        restore: Callable[[Model], object],
        free: Callable[[str], object],
        on_looked: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Args:
            registry: of all models.
            neighbours: of which Triton and its folder are asked.
            at_once: so many restores are under way.
            restore: begins the restore of a LOST model without an operation.
            free: begins to take a model down that has no operation.
            on_looked: called when the index was asked after a return of Triton.
        """
        self._registry = registry
        self._at_once = at_once
        self._restore = restore
        self._free = free
        self._on_looked = on_looked
        self._is_on = False
        self._turns = Turns()
        self._losses = Losses(
            registry=registry,
            neighbours=neighbours,
            is_wanted=lambda: self._is_on,
            lose=self._lose,
            on_looked=self._looked,
        )
        self._lost = 0
        """Of this restore: models that were LOST. A restore is over when none is left, and nobody looks for more."""
        self._crashes = 0
        self._crashed_at = 0.0
        self._given_up: str | None = None
        RESTORE_PENDING.set_function(self._pending)

    @property
    def notice(self) -> str | None:
        """How far it is, for `/readyz`: `restoring 7 of 10`; that it was given up; None when nothing is to be told. From any thread."""
        pending = self._pending()
        total = max(self._lost, pending)
        is_going_on = self._is_on and total and not (self._is_given_up and self._given_up)
        return f"restoring {total - pending} of {total}" if is_going_on else self._given_up

    def begin(self) -> None:
        """
        Load again every model that is LOST; those that are LOST later, too. For whenever the gate opens: after a take-over and
        after a purge, done or failed. What is LOST has its files placed: whoever fires MISS has compared the identity.
        """
        if self._losses.is_over:
            return
        self._is_on = True
        self._losses.resume()
        self._lost = max(self._lost, self._pending())
        self._turns.clear()
        for model in self._registry.lost():
            self._turns.add(model)
        self.go_on()

    def end(self, *, for_good: bool = False) -> None:
        """A purge or a drain has come: nothing is loaded again any more; what is under way is stopped by whoever calls."""
        RESTORES.labels("ended").inc(len(self._registry.lost()))
        self._is_on = False
        self._lost, self._crashes, self._given_up = 0, 0, None
        if for_good:
            self._losses.end()

    async def close(self) -> None:
        """End what runs in the background."""
        self._is_on = False
        await self._losses.close()

    @contextmanager
    def giving_way(self, model_id: str) -> Iterator[None]:
        """While inside, a call waits to begin an operation of this id: no restore of it begins."""
        try:
            with self._turns.called(model_id):
                yield
        finally:
            if (model := self._registry.find(model_id)) is not None:
                self._turns.add(model)
            self.go_on()

    def failed(self, operation: Operation) -> None:
        """An operation begins its undo. Deaths that several loads tell of are one, unless a load was sent after that was first told."""
        if not operation.is_again or not operation.has_crashed:
            return
        if not self._crashes or (operation.sent_at or 0.0) >= self._crashed_at:
            self._crashes += 1
            self._crashed_at = _now()
            self._losses.look_at_all()  # what Triton has lost now belongs to the same restore
        self.go_on()

    def ended(self, operation: Operation) -> None:
        """The id of an operation is free again."""
        self._turns.add(operation.model)
        self.go_on()

    def go_on(self) -> None:
        """Begin what can begin now; for whenever a model has become LOST, or an operation has ended."""
        if not self._is_on:
            return
        if self._is_given_up:
            self._give_up()
        elif self._turns:
            under_way = sum(operation.kind == "restore" and not operation.is_ending for operation in self._registry.operations())
            for model in self._turns.take(self._at_once - under_way):
                self._restore(model)
        if not self._losses.is_looking and not self._pending():
            if self._lost:
                log.info("restore.ended", models=self._lost, crashes=self._crashes, cause=self._given_up)
            self._lost = self._crashes = 0

    def _looked(self) -> None:
        self.go_on()
        self._on_looked()

    def _lose(self, models: Sequence[Model], placed: Mapping[str, str]) -> None:
        if models and not self._lost:
            self._given_up = None
        self._lost += len(models)
        for model in models:
            self._registry.fire(model, Event.LOSE)
            self._turns.add(model)
            found = placed.get(model.model_id)
            if found is None or found != model.placed:
                cause = "its directory is gone" if found is None else "its directory is not the one that was placed"
                log.warning("restore.failed", model_id=model.model_id, outcome="refused", cause=cause)
                self._abandon(model, "refused")

    # ---- what cannot be restored

    @property
    def _is_given_up(self) -> bool:
        return self._crashes >= MOST_CRASHES

    def _give_up(self) -> None:
        operations = self._registry.operations()
        for operation in operations:
            if operation.is_queued_restore:
                operation.stop(Superseded("Triton has died too often in this restore"))
        left = self._turns.take(ABANDONED_AT_ONCE - sum(operation.kind == "unload" for operation in operations))
        if left and self._given_up is None:
            self._given_up = f"a restore was given up: Triton has died {MOST_CRASHES} times while it was loading what it had lost"
            log.error("restore.given_up", models=sum(map(self._turns.may_take, self._registry.lost())), cause=self._given_up)
        for model in left:
            self._abandon(model, "given_up")

    def _abandon(self, model: Model, outcome: str) -> None:
        RESTORES.labels(outcome).inc()
        self._free(model.model_id)

    def _pending(self) -> int:
        """How many are LOST, or on their way back."""
        again = [operation for operation in self._registry.operations() if operation.is_again and not operation.is_ending]
        return len(self._registry.lost()) + sum(operation.model.state is not State.LOST for operation in again)


def _now() -> float:
    return asyncio.get_running_loop().time()
