"""
The gate before all loads and unloads, and the two ways to open it: a purge, or a take-over.

ModelMesh asks for the runtime's status only while it starts, with an empty view of its own: then everything is purged. When only
the adapter has restarted ModelMesh asks nothing, and the models serve on: then what Triton holds is taken over, by its index and
the journal (`adoption`). One task does either; while it runs the gate is shut. After a purge the gate stays shut until READY was
told, so that the fronts' next loads do not make another purge necessary.

What fails opens the gate: calls find out for themselves. A take-over is then made again; a purge is made when ModelMesh asks
again, as it does every 2 s.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from typing import Literal

import structlog

from adapter.errors import UNEXPECTED, AdapterError, Superseded, some
from adapter.inventory import by_owner
from adapter.lifecycle.adoption import Finding, Verdict, findings
from adapter.lifecycle.crashes import CrashCounts
from adapter.lifecycle.operation import JOURNAL, Model, Operation
from adapter.lifecycle.reconciler import Reconciler
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.sizes import Sizes
from adapter.lifecycle.states import State
from adapter.model import id_problem
from adapter.ports import Ports
from adapter.serving import RuntimeState
from adapter.waits import doubling, set_within

STATUS_PATIENCE_SECONDS = 1.0
"""How long a status question waits for a purge that may be about to end; ModelMesh asks every 2 s."""
READY_SECONDS = 10.0
"""Longest time that the gate stays shut after a purge, until ModelMesh asks."""
AT_ONCE = 100
"""Models that are found before other tasks have their turn on the loop."""
NAMED = 5
"""Models, or operations, that are named in a problem."""
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 5.0, 60.0
"""Before a take-over that has failed is made again, or Triton is looked at after a purge that has."""
NOT_ASKED = "ModelMesh has not asked for the runtime status yet"
TAKING_OVER = "Triton has not listed the models that it serves, which are taken over first"
PURGED = "purged: ModelMesh has not asked for the runtime status again"
NOT_PURGED = "not purged: ModelMesh has not asked for the runtime status again"

Kind = Literal["purge", "take-over"]

log = structlog.stdlib.get_logger(__name__)


class Takeover:
    """The gate, and the one background task that makes our view of Triton true."""

    def __init__(
        self,
        *,
        registry: Registry,
        ports: Ports,
        sizes: Sizes,
        reconciler: Reconciler,
        crashes: CrashCounts,
        on_open: Callable[[], None],
        version: str,
        reserved_ids: Collection[str],
    ) -> None:
        self._registry = registry
        self._reconciler = reconciler
        self._crashes = crashes
        self._on_open = on_open
        self._store = ports.store
        self._repository = ports.repository
        self._journal = ports.journal
        self._server = ports.server
        self._sizes = sizes
        self._version = version
        self._reserved_ids = reserved_ids
        self._task: asyncio.Task[None] | None = None
        self._under_way: Kind | None = None
        """What the task does; None when it is done, or when it pauses after a failure."""
        self._is_purged = False
        """A purge has ended, and no status call has been answered READY since."""
        self._ended = asyncio.Event()
        """Set while nothing is under way."""
        self._told_ready = asyncio.Event()
        self._gate = asyncio.Event()
        self._problem: str | None = NOT_ASKED
        self._awaited: list[Operation] = []
        """What a purge lets end first."""

    @property
    def problem(self) -> str | None:
        """Why ModelMesh could not be served now, in words; names what a purge waits for."""
        awaited = [str(operation) for operation in self._awaited if not operation.ended.is_set()]
        return f"purging: waiting for {some(awaited, NAMED)}" if awaited else self._problem

    @property
    def obstacle(self) -> str | None:
        """What the gate waits for, in words; None while it is open."""
        return None if self._gate.is_set() else self._server.problem or self.problem

    async def passed(self) -> None:
        """Wait until the gate is open. Looks again after waking: a purge may have begun in the same moment."""
        while not self._gate.is_set():
            await self._gate.wait()

    def met_modelmesh(self) -> None:
        """A load has succeeded: ModelMesh uses us, though it does not ask an adapter that restarts alone for its status."""
        if self._gate.is_set():
            self._problem = None

    def begin(self) -> None:
        """Take over what Triton's index shows, in the background."""
        self._begin("take-over", TAKING_OVER)

    async def status(self) -> RuntimeState:
        """READY once after each purge; every other question begins a purge or joins the one under way."""
        if self._under_way != "purge" and not self._is_empty_since_purge():
            self._is_purged = False
            self._begin("purge", "purging: every model is unloaded before the first READY")
        await set_within(self._ended, STATUS_PATIENCE_SECONDS)
        if self._is_empty_since_purge():
            self._is_purged = False
            self._problem = None
            self._told_ready.set()
            return RuntimeState(is_ready=True, version=self._version, problem=None)
        return RuntimeState(is_ready=False, version=self._version, problem=self._server.problem or self.problem)

    async def close(self) -> None:
        """End the task; the gate stays as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _is_empty_since_purge(self) -> bool:
        return self._is_purged and len(self._registry) == 0

    def _begin(self, kind: Kind, problem: str) -> None:
        earlier, self._problem = self._task, problem
        self._shut(kind)
        if earlier is not None:
            earlier.cancel()
        self._task = asyncio.create_task(self._run(kind, earlier), name=kind)

    def _shut(self, kind: Kind) -> None:
        self._under_way = kind
        self._ended.clear()
        self._gate.clear()

    async def _run(self, kind: Kind, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        step = self._purge if kind == "purge" else self._take_over
        told = None
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            failure = await self._failure(kind, step)
            self._under_way = None
            self._ended.set()
            if self._is_purged:
                await self._until_ready_is_told()
            self._gate.set()
            self._reconciler.begin()
            self._on_open()
            if failure is None:
                return
            if failure != told:
                told = failure
                log.error("takeover.failed", kind=kind, cause=failure)
            await asyncio.sleep(pause)
            is_view_made = kind == "purge" and self._registry.is_complete
            step = self._look_at_triton if is_view_made else self._take_over_again

    async def _until_ready_is_told(self) -> None:
        self._told_ready.clear()
        await set_within(self._told_ready, READY_SECONDS)

    async def _failure(self, kind: Kind, step: Callable[[], Awaitable[None]]) -> str | None:
        """Do it; why it has failed, where it helps to do it again."""
        try:
            await step()
        except AdapterError as error:  # a neighbour's state
            self._problem = error.text
            return error.text
        except Exception:
            self._problem = UNEXPECTED
            log.exception("takeover.crashed", kind=kind)
            return UNEXPECTED
        return None

    # ---- a purge

    async def _purge(self) -> None:
        self._version = await self._server.verify()
        self._reconciler.end()
        self._awaited = self._registry.operations()
        for operation in self._awaited:
            operation.stop(Superseded("ModelMesh has restarted: every model is purged"))
        for operation in self._awaited:
            await operation.ended.wait()
        if len(self._registry):
            self._problem = f"purging: Triton has not freed {some([repr(model.model_id) for model in self._registry], NAMED)} yet"
        try:
            await self._server.purge()
        except Exception:
            await self._give_up_what_is_gone()
            raise
        for record in list(self._journal.records.values()):  # also of models that were not taken over
            self._journal.forget(record)
        for model in self._registry:
            if model.artifact is not None:
                await self._store.release(model.artifact)
            self._registry.move(model, State.ABSENT)
        self._problem = f"purging: waiting for {JOURNAL}"
        await self._journal.written()
        self._registry.is_complete = self._is_purged = True
        self._problem = PURGED
        log.info("runtime.purged", triton=self._version)

    async def _give_up_what_is_gone(self) -> None:
        """A purge has ended half way. A model whose directory is gone is loaded no more: the next load takes down what Triton may hold."""
        placed = await self._repository.identities([model.model_id for model in self._registry])
        for model in self._registry:
            is_there = model.placed is not None and placed.get(model.model_id) == model.placed
            if model.operation is None and model.state in (State.LOADED, State.LOST) and not is_there:
                self._registry.move(model, State.UNLOADING)
                self._registry.move(model, State.FAILED)

    async def _look_at_triton(self) -> None:
        """After a purge that has failed, where ModelMesh asks no more: what was wrong may be right by now."""
        await self._server.verify()
        self._problem = NOT_PURGED

    # ---- a take-over

    async def _take_over_again(self) -> None:
        """The gate is shut anew: what has an operation now, or has had one since the failure, is not touched."""
        self._shut("take-over")
        await self._take_over()

    async def _take_over(self) -> None:
        """
        Models that serve go on serving, with all that the journal knows of them; those that Triton has lost are loaded again.

        Without a record the content is unknown: the next load of such a model is unload, wait, load. What is half done is
        taken down through Triton, also a directory that it has not loaded: the load may be on its way. What else the earlier process
        has left in the folder is swept at the end, so a sweep that fails costs no model.
        """
        known, generation = {model.model_id for model in self._registry}, self._registry.generation
        rows = by_owner(await self._server.index())
        placed = await self._repository.inventory()
        found = [
            finding
            for finding in findings(self._journal.records, rows, placed)
            if finding.model_id not in known and not self._repository.is_of_others(finding.model_id)
        ]
        self._problem = NOT_ASKED
        for number, finding in enumerate(found):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if finding.verdict is not Verdict.FORGOTTEN and id_problem(finding.model_id, self._reserved_ids) is None:
                await self._enter(finding, generation)
            elif finding.record is not None:
                self._journal.forget(finding.record)
        self._registry.is_complete = True
        states = Counter(model.state for model in self._registry)
        if states[State.LOADED] or states[State.LOST]:
            self._problem = None
            log.info("runtime.taken_over", models=states[State.LOADED], lost=states[State.LOST], half_done=states[State.FAILED])
        await self._repository.sweep()

    async def _enter(self, finding: Finding, generation: int) -> None:
        """
        What is half done is known by its name, and counts for what it may hold, until the reconciler has taken it down.

        A cancel comes before the model is entered, and leaves nothing; or after that, and a purge finds the model.
        """
        model, record = Model(finding.model_id, generation=generation), finding.record
        model.placed = finding.placed.identity if finding.placed else None
        model.size_bytes = self._sizes.adopted(finding.placed.size_bytes if finding.placed else 0)
        if finding.verdict is Verdict.RESIDUE:
            if finding.crash is not None:
                log.warning("takeover.crash", model_id=finding.model_id, crashes=self._crashes.count(finding.crash))
            model.earlier = record
            model.size_bytes = (record.size_bytes if record else 0) or model.size_bytes
            self._registry.move(model, State.FAILED)
            return
        state = State.LOADED if finding.verdict is Verdict.SERVES else State.LOST
        if record is None:
            self._registry.move(model, state)
            return
        is_thought = record.named is not None and not record.confirmed
        reported = await self._reported(finding.model_id) if is_thought or not record.size_bytes else 0
        if reported or record.size_bytes:
            model.size_bytes = self._sizes.adopted(0, reported) if reported else record.size_bytes
        if record.content is not None:
            self._sizes.remember(record.content, model.size_bytes)
        if record.artifact_key is not None:
            model.artifact = await self._store.reclaim(record.artifact_key)
        self._registry.adopt(model, state, record)

    async def _reported(self, model_id: str) -> int:
        try:
            return await self._server.reported_bytes(model_id) or 0
        except AdapterError as error:
            log.debug("size.unknown", model_id=model_id, cause=error.text)
            return 0
