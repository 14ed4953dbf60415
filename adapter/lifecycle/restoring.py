"""
Models that Triton has lost are loaded again from the files that are placed.

ModelMesh cannot be told that a model is gone. So whenever Triton has returned, its index is asked, and what should be
LOADED and was never asked of this Triton is LOST. A LOST model is restored by an operation like any other, last confirmed
first, a few at a time; calls go first. What cannot be restored becomes ABSENT. Triton may die again meanwhile: over two
deaths in one restore the rest is given up, for nobody can tell what kills it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import structlog

from adapter.backoff import doubling
from adapter.errors import AdapterError, Superseded
from adapter.inventory import is_untouched
from adapter.lifecycle.looks import Looks
from adapter.lifecycle.operation import Model, Operation
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.states import Event, State
from adapter.lifecycle.turns import Turns
from adapter.model import ServerModel
from adapter.ports import Neighbours
from adapter.telemetry.metrics import RESTORE_PENDING, RESTORES

MOST_CRASHES = 2
"""After so many deaths of Triton within one restore nothing more is restored."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.5, 10.0
"""Between questions that fail, for the index or the folder."""

ABANDONED_AT_ONCE = 64
"""So many models that are given up are taken down at a time."""
LOST_AT_ONCE = 100
"""After so many models that were found lost, others have their turn on the loop."""

WATCH = "watch for returns of Triton"
"""Name of the task that runs as long as the adapter does."""

log = structlog.stdlib.get_logger(__name__)


class Restoring:
    """Finds LOST models, and brings them back to LOADED, in the background."""

    def __init__(
        self,
        *,
        registry: Registry,
        neighbours: Neighbours,
        looks: Looks,
        at_once: int,
        restore: Callable[[Model], object],
        free: Callable[[str], object],
        on_looked: Callable[[], object] = lambda: None,
    ) -> None:
        """
        Args:
            registry: of all models.
            neighbours: of which Triton and its folder are asked.
            looks: at Triton's index.
            at_once: so many restores are under way.
            restore: begins the restore of a LOST model without an operation.
            free: begins to take a model down that has no operation.
            on_looked: called when the index was asked after a return of Triton.
        """
        self._registry = registry
        self._repository = neighbours.repository
        self._server = neighbours.server
        self._looks = looks
        self._at_once = at_once
        self._restore = restore
        self._free = free
        self._on_looked = on_looked
        self._is_on = self._is_over = False
        self._turns = Turns()
        self._tasks: set[asyncio.Task[None]] = set()
        self._watch: asyncio.Task[None] | None = None
        self._look_for_all: asyncio.Task[None] | None = None
        self._is_to_look = self._is_another = False
        """Whether Triton has returned since that look began, and was certainly another process in one of these returns."""
        self._has_returned = asyncio.Event()
        """For a look that pauses."""
        self._looked_after: dict[Operation, tuple[bool, float]] = {}
        """Operations whose models are looked at when they have ended; likewise, and when the last look began that met them."""
        self._has_missed = False
        """Triton has returned while nothing could be begun."""
        self._looking = 0
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
        if self._is_over:
            return
        self._is_on = True
        if self._watch is None:
            self._watch = self._spawn(self._until_cancelled(), WATCH)
        if self._has_missed:
            self._has_missed = False
            self._look_at_all()
        self._lost = max(self._lost, self._pending())
        self._turns.clear()
        for model in self._registry.lost():
            self._turns.add(model)
        self.go_on()

    def end(self, *, for_good: bool = False) -> None:
        """A purge or a drain has come: nothing is loaded again any more; what is under way is stopped by whoever calls."""
        RESTORES.labels("ended").inc(len(self._registry.lost()))
        self._is_on, self._is_over = False, self._is_over or for_good
        self._lost, self._crashes, self._given_up = 0, 0, None

    async def close(self) -> None:
        """End what runs in the background."""
        self._is_on, self._is_over = False, True
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

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
            self._look_at_all()  # what Triton has lost now belongs to the same restore
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
        if not self._looking and not self._pending():
            if self._lost:
                log.info("restore.ended", models=self._lost, crashes=self._crashes, cause=self._given_up)
            self._lost = self._crashes = 0

    # ---- what is lost

    async def _until_cancelled(self) -> None:
        while True:
            is_another = await self._server.returned()
            log.info("triton.returned", is_another_process=is_another)
            self._look_at_all(is_another=is_another)

    def _look_at_all(self, *, is_another: bool = False) -> None:
        """However often Triton comes and goes, one look is under way; another one follows."""
        self._is_another |= is_another
        self._has_returned.set()
        self._is_to_look = self._look_for_all is not None
        if not self._is_to_look:
            is_another, self._is_another = self._is_another, False
            self._look_for_all = self._begin_look(list(self._registry), is_another=is_another)

    def _begin_look(self, models: Sequence[Model], *, is_another: bool = False) -> asyncio.Task[None] | None:
        if self._is_over:
            return None
        self._looking += 1
        task = self._spawn(self._look(models, is_another=is_another))
        task.add_done_callback(self._looked)
        return task

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking -= 1
        if task is self._look_for_all:
            self._look_for_all = None
            if self._is_to_look:
                self._look_at_all()
        self.go_on()
        self._on_looked()

    async def _look(self, models: Sequence[Model], *, is_another: bool) -> None:
        """
        Find what Triton has lost. Certain is a model that was LOADED, and nothing else, from before the question on, and of which
        this Triton has only the directory. One that an operation holds is looked at once more when that has ended.
        """
        began = _now()
        held = {model.operation for model in models if model.operation is not None}
        asked = {model.model_id: (model, model.changes) for model in models if model.state is State.LOADED and model.operation is None}
        if asked:
            rows, placed = await self._seen(asked, is_another)
            held |= {model.operation for model, _ in asked.values() if model.operation is not None}
            lost = [model for model, _ in asked.values() if _is_lost(rows.get(model.model_id, []), is_another)]
            lost = [model for model in lost if model.operation is None and model.changes == asked[model.model_id][1]]
            if lost and not is_another:
                self._server.confirm_restart()
            lost.sort(key=lambda model: -model.confirmed)
            for start in range(0, len(lost), LOST_AT_ONCE):
                if start:
                    await asyncio.sleep(0)
                some = lost[start : start + LOST_AT_ONCE]
                held |= {model.operation for model in some if model.operation is not None}
                if self._is_on:
                    still = [model for model in some if model.operation is None and model.changes == asked[model.model_id][1]]
                    self._lose(still, placed)
            self._has_missed |= not self._is_on
            if lost and self._is_on:
                log.warning("restore.begun", models=len(lost))
        for operation in held:
            self._look_after(operation, began, is_another=is_another)

    def _look_after(self, operation: Operation, began: float, *, is_another: bool) -> None:
        """One look for all looks that have met the operation."""
        if operation not in self._looked_after:
            self._spawn(self._look_at_its_end(operation))
        was_another, latest = self._looked_after.get(operation, (False, began))
        self._looked_after[operation] = (was_another or is_another, max(latest, began))

    async def _look_at_its_end(self, operation: Operation) -> None:
        """What was sent to Triton since the last look began cannot have been lost before it."""
        await operation.ended.wait()
        is_another, began = self._looked_after.pop(operation)
        if operation.model.state is State.LOADED and (operation.sent_at is None or operation.sent_at < began):
            self._begin_look([operation.model], is_another=is_another)

    async def _seen(self, model_ids: Collection[str], is_another: bool) -> tuple[Mapping[str, Sequence[ServerModel]], Mapping[str, str]]:
        """
        What Triton's index holds, and, unless that is all that should be there, which directories the models are.

        Asked until both can be told, and of a Triton that is ours: one with another repository has lost nothing, and can be
        given nothing.
        """
        told = None
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            self._has_returned.clear()
            try:
                rows = await self._looks.rows()
                if not is_another and all(any(row.state for row in rows.get(model_id, ())) for model_id in model_ids):
                    return rows, {}
                await self._server.verify()
                return rows, await self._repository.identities(model_ids)
            except Exception as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("restore.blind", cause=told, exc_info=not isinstance(error, AdapterError))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._has_returned.wait()
        raise AssertionError("the pauses are endless")

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

    def _spawn(self, work: Coroutine[Any, Any, None], name: str = "look for lost models") -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _is_lost(rows: Sequence[ServerModel], is_another: bool) -> bool:
    """Triton has only the directory; or not even that, and is certainly another process."""
    return is_untouched(rows) or (is_another and not rows)


def _now() -> float:
    return asyncio.get_running_loop().time()
