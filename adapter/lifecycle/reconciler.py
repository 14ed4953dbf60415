"""
Makes models what they should be when no call does: restores what Triton has lost, frees what an undo has left.

- After each return of Triton the index is asked. A model that was LOADED from before the question on, and of which Triton has only
  the directory, is LOST. A model that an operation holds meanwhile is looked at when that has ended.
- A LOST model is loaded again from the files that are placed: last confirmed first, a few at a time, calls first. A model whose
  files are not as they were is taken down. After two deaths of Triton in one restore the rest is taken down: it cannot be told
  what kills it.
- A FAILED model is taken down again, 64 at a time, until nothing of it is left.

ModelMesh cannot be told that a model is gone, so it is told nothing. One pass over thousands of models takes 20–75 ms, so models
are visited only where something has happened to them.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager

import structlog

from adapter.errors import AdapterError, Superseded
from adapter.inventory import by_owner, is_untouched
from adapter.lifecycle.operation import Model, Operation
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.states import State
from adapter.lifecycle.work import Work
from adapter.ports import Ports
from adapter.telemetry.metrics import RESTORE_PENDING, RESTORES
from adapter.waits import doubling, set_within

MOST_CRASHES = 2
"""Deaths of Triton within one restore after which nothing more is restored."""
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

log = structlog.stdlib.get_logger(__name__)


class Reconciler:
    """Works while the gate is open; as `work.Listener`."""

    def __init__(self, *, registry: Registry, ports: Ports, work: Work, at_once: int, on_looked: Callable[[], None]) -> None:
        """`at_once`: most restores under way; `on_looked`: called after each look at what Triton holds."""
        self._registry = registry
        self._repository = ports.repository
        self._server = ports.server
        self._work = work
        self._at_once = at_once
        self._on_looked = on_looked
        self._is_on = self._is_over = False
        self._watching: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._unseen: dict[str, Model] = {}
        """To be looked at: what Triton may have lost."""
        self._returns, self._returned_at = 0, 0.0
        self._is_another = False
        """One of the returns since the last look was certainly another process."""
        self._has_news = asyncio.Event()
        """Triton has returned: a look that pauses goes on."""
        self._heap: list[tuple[float, int, Model]] = []
        """LOST models; those that are not LOST any more are passed over."""
        self._numbers = itertools.count()
        self._calls: Counter[str] = Counter()
        """Calls that wait to begin an operation, by model id."""
        self._to_free: deque[Model] = deque()
        self._pauses: dict[str, float] = {}
        """Model id → how long a FAILED model was last left alone."""
        self._paused: set[str] = set()
        """Models that are left alone now."""
        self._lost = 0
        """Models that were LOST in this restore, which is over when none is left and no look is due."""
        self._crashes, self._crashed_at = 0, 0.0
        self._given_up: str | None = None
        RESTORE_PENDING.set_function(self._pending)

    @property
    def notice(self) -> str | None:
        """How far a restore is, for `/readyz`: `restoring 7 of 10`; that it was given up; None. From any thread."""
        pending = self._pending()
        total = max(self._lost, pending)
        is_going_on = self._is_on and total and not (self._is_given_up and self._given_up)
        return f"restoring {total - pending} of {total}" if is_going_on else self._given_up

    # ---- when it works

    def begin(self) -> None:
        """The gate is open: after a take-over or a purge, done or failed."""
        if self._is_over:
            return
        self._is_on = True
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name=WATCH)
        self._lost = max(self._lost, self._pending())
        self._heap.clear()
        for model in self._registry.lost():
            self._note(model)
        self._look_soon()
        self.go_on()

    def end(self, *, for_good: bool = False) -> None:
        """A purge or a drain has come: nothing is begun any more; what is under way is stopped by the caller."""
        RESTORES.labels("ended").inc(len(self._registry.lost()))
        self._is_on = False
        self._is_over |= for_good
        self._to_free.clear()
        self._pauses.clear()
        self._lost, self._crashes, self._given_up = 0, 0, None

    async def close(self) -> None:
        """End what runs in the background."""
        self._is_on, self._is_over = False, True
        tasks = {task for task in (self._watching, self._looking) if task is not None}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

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
            if (model := self._registry.find(model_id)) is not None:
                self._note(model)
            self.go_on()

    def free(self, models: Iterable[Model]) -> None:
        """Take these down, which are FAILED, as soon as the gate is open."""
        self._to_free.extend(models)
        self.go_on()

    def failed(self, operation: Operation) -> None:
        """As `Listener`. Deaths that several loads tell of are one, unless a load was sent after that was first told."""
        if not operation.is_again or not operation.has_crashed:
            return
        if not self._crashes or (operation.sent_at or 0.0) >= self._crashed_at:
            self._crashes += 1
            self._crashed_at = _now()
            self._suspect(is_another=False)  # what Triton has lost now belongs to the same restore
        self.go_on()

    def ended(self, operation: Operation) -> None:
        """As `Listener`."""
        model = operation.model
        if model.state is not State.FAILED:
            self._pauses.pop(model.model_id, None)
        self._note(model)
        if model.model_id in self._unseen:
            if model.state is not State.LOADED or (operation.sent_at or 0.0) > self._returned_at:
                del self._unseen[model.model_id]
            self._look_soon()
        self.go_on()

    def go_on(self) -> None:
        """Begin what can begin now."""
        if not self._is_on:
            return
        operations = self._registry.operations()
        unloads = sum(operation.kind == "unload" for operation in operations)
        while self._to_free and unloads < TAKEN_DOWN_AT_ONCE:
            model = self._to_free.popleft()
            if self._is_free(model, State.FAILED):
                self._work.unload(model.model_id)
                unloads += 1
        if self._is_given_up:
            self._give_up(operations, TAKEN_DOWN_AT_ONCE - unloads)
        elif self._heap:
            under_way = sum(operation.kind == "restore" and not operation.is_ending for operation in operations)
            for model in self._taken(self._at_once - under_way):
                self._work.restore(model)
        if self._looking is None and not self._pending():
            if self._lost:
                log.info("restore.ended", models=self._lost, crashes=self._crashes, cause=self._given_up)
            self._lost = self._crashes = 0

    def _is_free(self, model: Model, state: State) -> bool:
        """It is in this state still, without an operation, and no call waits to begin one."""
        return model.state is state and model.operation is None and model.model_id not in self._calls

    def _note(self, model: Model) -> None:
        """A model without an operation may need one."""
        if model.operation is not None:
            return
        if model.state is State.LOST:
            heapq.heappush(self._heap, (-model.confirmed, next(self._numbers), model))
        elif model.state is State.FAILED and model.model_id not in self._paused:
            pause = min(2 * self._pauses.get(model.model_id, FIRST_PAUSE_SECONDS / 2), LONGEST_PAUSE_SECONDS)
            self._pauses[model.model_id] = pause
            self._paused.add(model.model_id)
            log.info("model.failed", model_id=model.model_id, again_in_seconds=pause)
            asyncio.get_running_loop().call_later(pause, self._again, model)

    def _again(self, model: Model) -> None:
        self._paused.discard(model.model_id)
        if not self._is_over:
            self.free([model])

    # ---- what Triton has lost

    async def _watch(self) -> None:
        while True:
            is_another = await self._server.returned()
            log.info("triton.returned", is_another_process=is_another)
            self._suspect(is_another=is_another)

    def _suspect(self, *, is_another: bool) -> None:
        """Whatever is LOADED, or may be soon, may be lost."""
        self._returns += 1
        self._returned_at = _now()
        self._is_another |= is_another
        self._has_news.set()
        self._unseen |= {model.model_id: model for model in self._registry if model.state is State.LOADED or model.operation is not None}
        self._look_soon()

    def _look_soon(self) -> None:
        if self._is_on and self._looking is None and self._suspects():
            self._looking = asyncio.create_task(self._look(), name=LOOK)
            self._looking.add_done_callback(self._looked)

    def _suspects(self) -> dict[str, int]:
        """Model id → changes, of those that can be looked at now."""
        for model in list(self._unseen.values()):
            if model.operation is None and model.state is not State.LOADED:
                del self._unseen[model.model_id]
        return {model.model_id: model.changes for model in self._unseen.values() if model.operation is None}

    def _looked(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            log.error("restore.crashed", exc_info=failure)
        self._look_soon()
        self.go_on()
        self._on_looked()

    async def _look(self) -> None:
        """Once. What an operation holds meanwhile stays unseen, and after a return of Triton all that was not lost before."""
        asked, returns, is_another = self._suspects(), self._returns, self._is_another
        lost, placed = await self._lost_of(asked, is_another=is_another)
        seen = [self._unseen[model_id] for model_id in asked if model_id in self._unseen]
        if lost and not is_another:
            self._server.confirm_restart()
        if lost:
            log.warning("restore.begun", models=len(lost))
        if lost and not self._lost:
            self._given_up = None
        for number, model in enumerate(sorted(seen, key=lambda model: -model.confirmed)):
            if number % LOST_AT_ONCE == LOST_AT_ONCE - 1:
                self.go_on()
                await asyncio.sleep(0)
            if not self._is_on:
                return
            is_lost = model.model_id in lost
            if model.operation is None and model.changes == asked[model.model_id] and (is_lost or returns == self._returns):
                self._unseen.pop(model.model_id, None)
                if is_lost:
                    self._lose(model, placed.get(model.model_id))
        self._is_another &= bool(self._unseen)

    async def _lost_of(self, model_ids: Mapping[str, int], *, is_another: bool) -> tuple[set[str], Mapping[str, str]]:
        """
        Those that Triton has lost, and the identities of their directories that are there.

        Asked until both can be told, and of a Triton that is ours: one with another repository has lost nothing, and can be
        given nothing.
        """
        told = None
        for pause in doubling(FIRST_LOOK_SECONDS, LONGEST_LOOK_SECONDS):
            self._has_news.clear()
            try:
                rows = by_owner(await self._server.index(model_ids))
                found = {model_id: rows.get(model_id, ()) for model_id in model_ids}
                if not is_another and all(any(row.state for row in held) for held in found.values()):
                    return set(), {}
                lost = {model_id for model_id, held in found.items() if is_untouched(held) or (is_another and not held)}
                await self._server.verify()
                return lost, await self._repository.identities(model_ids)
            except Exception as error:
                if str(error) != told:
                    told = str(error)
                    log.warning("restore.blind", cause=told, exc_info=not isinstance(error, AdapterError))
            await set_within(self._has_news, pause)
        raise AssertionError("the pauses are endless")

    def _lose(self, model: Model, placed: str | None) -> None:
        self._lost += 1
        self._registry.move(model, State.LOST)
        if placed is not None and placed == model.placed:
            self._note(model)
            return
        cause = "its directory is gone" if placed is None else "its directory is not the one that was placed"
        log.warning("restore.failed", model_id=model.model_id, outcome="refused", cause=cause)
        self._abandon(model, "refused")

    # ---- restores

    def _taken(self, count: int) -> list[Model]:
        """At most `count` LOST models, without an operation, and that no call waits for."""
        found: dict[str, Model] = {}
        while self._heap and len(found) < count:
            model = heapq.heappop(self._heap)[2]
            if self._is_free(model, State.LOST):
                found[model.model_id] = model
        return list(found.values())

    @property
    def _is_given_up(self) -> bool:
        return self._crashes >= MOST_CRASHES

    def _give_up(self, operations: Iterable[Operation], at_once: int) -> None:
        for operation in operations:
            if operation.is_queued_restore:
                operation.stop(Superseded("Triton has died too often in this restore"))
        left = self._taken(at_once)
        if left and self._given_up is None:
            self._given_up = f"a restore was given up: Triton has died {MOST_CRASHES} times while it was loading what it had lost"
            log.error("restore.given_up", models=sum(model.operation is None for model in self._registry.lost()), cause=self._given_up)
        for model in left:
            self._abandon(model, "given_up")

    def _abandon(self, model: Model, outcome: str) -> None:
        RESTORES.labels(outcome).inc()
        self._work.unload(model.model_id)

    def _pending(self) -> int:
        """How many are LOST, or on their way back."""
        again = [operation for operation in self._registry.operations() if operation.is_again and not operation.is_ending]
        return len(self._registry.lost()) + sum(operation.model.state is not State.LOST for operation in again)


def _now() -> float:
    return asyncio.get_running_loop().time()
