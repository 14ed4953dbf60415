"""
One task that makes what is believed of Triton true, and the gate before all loads and unloads.

It does one step at a time, and what is missing says which: a purge that was asked for, the take-over, else a look. While the take-over
fails, it is made again every five seconds, and a look where something has happened.

- PURGE: ModelMesh asks for the runtime's status only while it starts, with an empty view of its own, so every model is unloaded. The
  gate then stays shut until READY was told: a front's next load would make another purge necessary.
- TAKE_OVER: when only the adapter has restarted, ModelMesh asks nothing and the models keep serving. What Triton holds is taken over, by
  its index, the folder and the journal (`findings`).
- LOOK: after each return of Triton, and once a minute while nothing is under way. A model that was LOADED from before the question on,
  and of which Triton has only the directory, is LOST. A model that an operation holds meanwhile is looked at when that has ended. Where
  nothing is lost: whether table, index and folder agree.

The gate is shut during the first two. What fails opens it: calls find out for themselves. Every step but a purge is repeated until
it works; ModelMesh itself asks for the next purge.

While the gate is open, operations begin that no call asks for. A LOST model is loaded from the files that are placed: last confirmed
first, a few at a time, calls first. A FAILED model is taken down again, 64 at a time, until nothing of it is left. One pass over
thousands of models takes 20–75 ms, so only those two states are visited, where something has happened.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

import structlog

from adapter.errors import UNEXPECTED, AdapterError, Superseded, some
from adapter.lifecycle.looks import Looks
from adapter.lifecycle.operation import JOURNAL, Operation
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.lifecycle.worker import Worker
from adapter.ports import Ports
from adapter.waits import end, set_within

STATUS_PATIENCE_SECONDS = 1.0
"""How long a status question waits for a purge that may be about to end; ModelMesh asks every 2 s."""
READY_SECONDS = 10.0
"""Longest time that the gate stays shut after a purge, until ModelMesh asks."""
RETRY_SECONDS = 5.0
"""Before a step that has failed is made again."""
RECONCILER = "reconciler"
"""Name of the tasks that run as long as the adapter does."""
TAKEN_DOWN_AT_ONCE = 64
"""Thousands at once would hold up the loop, the folder's threads and Triton's unloads for all others."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 10.0, 300.0
"""Before a FAILED model is taken down again."""
NAMED = 5
"""Models, or operations, that are named in a problem."""
NOT_ASKED = "ModelMesh has not asked for the runtime status yet"
TAKING_OVER = "Triton has not listed the models that it serves, which are taken over first"
PURGING = "purging: every model is unloaded before the first READY"
PURGED = "purged: ModelMesh has not asked for the runtime status again"


log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class Reconciler:
    """The task, the gate, and the operations that no call asks for."""

    registry: Registry
    ports: Ports
    worker: Worker
    looks: Looks
    at_once: int
    """Most restores under way."""
    version: str = ""
    """Of the Triton that was purged last."""
    is_draining: bool = False
    """Nothing is begun any more."""
    _lost: int = 0
    """Models that were LOST in this restore, which is over when none is left."""
    _failed: str = ""
    """The step that has failed last, and was not made since."""
    _running: asyncio.Task[float] | None = None
    """The step that is made."""
    _is_purged: bool = False
    """A purge has ended, and no status call has been answered READY since."""
    _problem: str | None = TAKING_OVER

    def __post_init__(self) -> None:
        self._calls = Counter[str]()
        """Calls that wait to begin an operation, by model id."""
        self._has_news, self._gate, self._no_purge = asyncio.Event(), asyncio.Event(), asyncio.Event()
        """Set when the next step is due; while calls may pass; while no purge is under way."""
        self._no_purge.set()

    # ---- the gate

    @property
    def problem(self) -> str | None:
        """Why ModelMesh could not be served now, in words; names what a purge waits for."""
        awaited = [] if self._no_purge.is_set() else [str(operation) for operation in self.registry.operations()]
        return f"purging: waiting for {some(awaited, NAMED)}" if awaited else self._problem

    @property
    def obstacle(self) -> str | None:
        """What the gate waits for, in words; None while it is open."""
        return None if self._gate.is_set() else self.ports.server.problem or self.problem

    async def passed(self) -> None:
        """Wait until the gate is open. Looks again after waking: a purge may have begun in the same moment."""
        while not self._gate.is_set():
            await self._gate.wait()

    def met_modelmesh(self) -> None:
        """A load has succeeded: ModelMesh uses us, though it does not ask an adapter that restarts alone for its status."""
        if self._gate.is_set():
            self._problem = None

    async def purged(self) -> bool:
        """ModelMesh asks: true once after each purge; every other question begins a purge or joins the one under way."""
        if self._no_purge.is_set() and not self._is_empty_since_purge():
            self._is_purged, self._problem = False, PURGING
            self._no_purge.clear()
            self._gate.clear()
            self._has_news.set()
            if self._running is not None:  # also a purge that has ended and waits for this call
                self._running.cancel()
        await set_within(self._no_purge, STATUS_PATIENCE_SECONDS)
        if is_done := self._is_empty_since_purge():
            self._is_purged, self._problem = False, None
            self._gate.set()
        return is_done

    def _is_empty_since_purge(self) -> bool:
        return self._is_purged and len(self.registry) == 0

    # ---- the task

    async def watch(self) -> None:
        """See each return of Triton, for as long as the adapter runs."""
        while True:
            is_another = await self.ports.server.returned()
            log.info("triton.returned", is_another_process=is_another)
            self.registry.generation += 1
            self.registry.changes += 1
            if is_another:
                self.looks.other = self.registry.generation
            self._has_news.set()

    def ended(self, operation: Operation) -> None:
        """The id of an operation is free again."""
        model = operation.model
        if model.state is State.FAILED and not model.is_paused:  # it is left alone, each time for longer
            model.is_paused = True
            model.pause_seconds = min(2 * model.pause_seconds or FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS)
            log.info("model.failed", model_id=model.model_id, again_in_seconds=model.pause_seconds)
            asyncio.get_running_loop().call_later(model.pause_seconds, self._go_on_with, model)
        if self.looks.is_suspect(model):
            self._has_news.set()
        self.go_on()

    async def run(self) -> None:
        """Make the steps, for as long as the adapter runs; the first one is the take-over."""
        try:
            while True:
                step = "LOOK" if self.registry.is_complete or self._has_news.is_set() else "TAKE_OVER"
                if not self._no_purge.is_set():
                    step = "PURGE"
                self._has_news.clear()
                self._running = asyncio.create_task(self._make(step), name=step)
                await asyncio.wait({self._running})
                if not self._running.cancelled():
                    pause_seconds = self._running.result()
                    await set_within(self._has_news, pause_seconds if self.registry.is_complete else RETRY_SECONDS)
        finally:
            await end(self._running)

    async def _make(self, step: str) -> float:
        """
        Make the step; after a purge or a take-over the gate opens, after a purge that has worked when READY was told.

        Returns:
            Seconds until the next one.
        """
        steps = {"PURGE": self._purge, "TAKE_OVER": self._take_over, "LOOK": self.looks.look}
        failure, pause_seconds = None, RETRY_SECONDS
        try:
            pause_seconds = await steps[step]()
        except AdapterError as error:  # a neighbour's state
            failure = error.text
        except Exception:
            failure = UNEXPECTED
            log.exception("reconciler.crashed", step=step)
        if failure is not None and step != self._failed:
            log.warning("reconciler.failed", step=step, cause=failure)
        self._failed = step if failure is not None else ""
        if step != "LOOK":
            self._problem = failure or self._problem
            self._no_purge.set()
            if self._is_purged:
                await set_within(self._gate, READY_SECONDS)
            self._gate.set()
        self.go_on()
        return pause_seconds

    # ---- operations that no call asks for

    @property
    def notice(self) -> str | None:
        """How far a restore is, for `/readyz`: `restoring 7 of 10`; None. From any thread."""
        pending = len(self.registry.lost)
        total = max(self._lost, pending)
        return f"restoring {total - pending} of {total}" if self._gate.is_set() and total else None

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
        if self.is_draining or not self._gate.is_set():
            return
        operations = self.registry.operations()
        places = max(TAKEN_DOWN_AT_ONCE - sum(operation.kind == "unload" for operation in operations), 0)
        failed = (model for model in self.registry.all_in(State.FAILED) if not model.is_paused and self._is_free(model))
        for model in islice(failed, places):
            self.worker.unload(model.model_id, is_background=True)
        taken = [each for each in operations if not each.is_ending and (each.kind == "restore" or each.has_slot)]
        places = max(self.at_once - len(taken), 0)  # a load that a call waits for comes before restores
        lost = (model for model in self.registry.all_in(State.LOST) if self._is_free(model))
        for model in heapq.nlargest(places, lost, key=lambda model: model.confirmed):
            self.worker.restore(model)
        self._lost = max(self._lost, len(self.registry.lost))
        if self._lost and not self.registry.lost:
            log.info("restore.ended", models=self._lost)
            self._lost = 0

    def _go_on_with(self, model: Model) -> None:
        model.is_paused = False
        self.go_on()

    def _is_free(self, model: Model) -> bool:
        return model.operation is None and model.model_id not in self._calls

    # ---- a purge

    async def _purge(self) -> float:
        self.version = await self.ports.server.verify()
        self._lost = 0
        for operation in (operations := self.registry.operations()):
            operation.stop(Superseded("ModelMesh has restarted: every model is purged"))
        for operation in operations:
            await operation.wait()
        if len(self.registry):
            self._problem = f"purging: Triton has not freed {some([repr(model.model_id) for model in self.registry], NAMED)} yet"
        try:
            await self.ports.server.purge()
        except Exception:  # ended half way: all of them go nevertheless, one by one
            for model in self.registry:
                if model.state in (State.LOADED, State.LOST):
                    self.registry.move(model, State.UNLOADING)
                    self.registry.move(model, State.FAILED)
            raise
        for record in list(self.ports.journal.records.values()):  # also of models that were not taken over
            self.ports.journal.forget(record)
        for model in self.registry:
            if model.artifact is not None:
                await self.ports.store.release(model.artifact)
            self.registry.move(model, State.ABSENT)
        self._problem = f"purging: waiting for {JOURNAL}"
        await self.ports.journal.written()
        self.registry.is_complete = self._is_purged = True
        self._problem = PURGED
        log.info("runtime.purged", triton=self.version)
        return 0.0

    async def _take_over(self) -> float:
        self._gate.clear()
        self._problem = None if await self.looks.take_over() else NOT_ASKED
        return 0.0
