"""
The gate before all loads and unloads, and the two ways to open it: a purge, or a take-over.

ModelMesh asks for the runtime's status only while it starts, with an empty view of its own: then everything is purged. When only
the adapter has restarted ModelMesh asks nothing, and the models serve on: then what Triton holds is taken over, by its index and
the journal (`findings`). One task does either; while it runs the gate is shut. After a purge the gate stays shut until READY was
told, so that the fronts' next loads do not make another purge necessary.

What fails opens the gate: calls find out for themselves. A take-over is then made again; a purge is made when ModelMesh asks
again, as it does every 2 s.

A record of the journal is believed only where the folder still holds the very directory that it tells of: a model that was placed
again meanwhile, without a note in this journal, is another one.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import structlog

from adapter.errors import UNEXPECTED, AdapterError, Superseded, some
from adapter.inventory import by_owner, is_untouched, serves
from adapter.lifecycle.facts import Facts
from adapter.lifecycle.operation import JOURNAL
from adapter.lifecycle.reconciler import Reconciler
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.model import Placed, Record, ServerModel, id_problem
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
NOT_PURGED = "not purged: ModelMesh has not asked for the runtime status again"
PURGED = "purged: ModelMesh has not asked for the runtime status again"

log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True)
class Finding:
    """One model id as a process finds it at its start."""

    model_id: str
    state: State
    """What it becomes: LOADED, LOST, FAILED (half done, to be taken down), or ABSENT (it is nowhere)."""
    record: Record | None
    """What is still true of the model; None: the content is unknown."""
    placed: Placed | None
    """Its directory, if there is one."""
    crash: str | None = None
    """Triton died while it was loading this content (`Content.crash`)."""


def findings(records: Mapping[str, Record], rows: Mapping[str, Sequence[ServerModel]], placed: Mapping[str, Placed]) -> list[Finding]:
    """
    One for each id that the journal or Triton's index knows. A directory that neither knows is not ours to touch. Pure.

    Args:
        records: of an earlier process, by model id.
        rows: of the index, by model id (`inventory.by_owner`).
        placed: the repository folder, by model id.
    """
    has_restarted = any(
        record.state == "loaded" and _is_of(record, placed.get(name)) and is_untouched(rows.get(name, ()))
        for name, record in records.items()
    )
    return [
        _finding(name, records.get(name), rows.get(name, ()), placed.get(name), has_restarted=has_restarted)
        for name in dict.fromkeys((*rows, *records))
    ]


def _finding(model_id: str, record: Record | None, rows: Sequence[ServerModel], placed: Placed | None, *, has_restarted: bool) -> Finding:
    """
    A model is LOST if a caller was told that it is loaded, and none has unloaded it.

    A model that an earlier process was about to load *again* had been loaded before (`confirmed`). One that was to be loaded
    for the first time belongs to a call that has ended, and the load of one that Triton is loading now cannot be followed.
    """
    if not rows and placed is None:
        return Finding(model_id, State.ABSENT, record, None)
    known = record if record is not None and _is_of(record, placed) else None
    if serves(model_id, rows):
        is_wanted = known is None or known.state not in ("unloading", "failed")
        return Finding(model_id, State.LOADED if is_wanted else State.FAILED, known, placed)
    if known is None or not is_untouched(rows):
        return Finding(model_id, State.FAILED, known, placed)
    if has_restarted and known.state == "loading":
        return Finding(model_id, State.FAILED, known, placed, known.content.crash if known.content else None)
    is_lost = known.state in ("loaded", "lost") or (known.state == "loading" and known.confirmed > 0)
    return Finding(model_id, State.LOST if is_lost else State.FAILED, known, placed)


def _is_of(record: Record, placed: Placed | None) -> bool:
    return placed is not None and record.placed == placed.identity


@dataclass(eq=False)
class Takeover:
    """The gate, and the one background task that makes our view of Triton true."""

    registry: Registry
    ports: Ports
    facts: Facts
    reconciler: Reconciler
    version: str
    reserved_ids: Collection[str]
    task: asyncio.Task[None] | None = None
    """To be ended with the adapter; the gate stays as it is."""
    _is_purged: bool = False
    """A purge has ended, and no status call has been answered READY since."""
    _no_purge: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no purge is under way."""
    _told_ready: asyncio.Event = field(default_factory=asyncio.Event)
    _gate: asyncio.Event = field(default_factory=asyncio.Event)
    _problem: str | None = NOT_ASKED

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

    def begin(self) -> None:
        """Take over what Triton's index shows, in the background."""
        self._no_purge.set()
        self._begin(partial(self._repeat, self._take_over, "take-over"), TAKING_OVER, "take-over")

    async def status(self) -> RuntimeState:
        """READY once after each purge; every other question begins a purge or joins the one under way."""
        if self._no_purge.is_set() and not self._is_empty_since_purge():
            self._is_purged = False
            self._no_purge.clear()
            self._begin(self._purge_once, "purging: every model is unloaded before the first READY", "purge")
        await set_within(self._no_purge, STATUS_PATIENCE_SECONDS)
        if self._is_empty_since_purge():
            self._is_purged = False
            self._problem = None
            self._told_ready.set()
            return RuntimeState(is_ready=True, version=self.version, problem=None)
        return RuntimeState(is_ready=False, version=self.version, problem=self.ports.server.problem or self.problem)

    def _is_empty_since_purge(self) -> bool:
        return self._is_purged and len(self.registry) == 0

    def _begin(self, work: Callable[[], Awaitable[None]], problem: str, name: str) -> None:
        async def run() -> None:
            if earlier is not None:
                await asyncio.wait({earlier})
            await work()

        earlier, self._problem = self.task, problem
        self._gate.clear()
        if earlier is not None:
            earlier.cancel()  # now: it must not open the gate any more
        self.task = asyncio.create_task(run(), name=name)

    async def _is_done(self, step: Callable[[], Awaitable[None]], kind: str) -> bool:
        """Do it, then open the gate, also after a failure."""
        failure: str | None = None
        try:
            await step()
        except AdapterError as error:  # a neighbour's state
            failure = self._problem = error.text
            log.error("takeover.failed", kind=kind, cause=failure)  # noqa: TRY400 - one sentence, not a traceback
        except Exception:
            failure = self._problem = UNEXPECTED
            log.exception("takeover.crashed", kind=kind)
        self._no_purge.set()
        if self._is_purged:
            self._told_ready.clear()
            await set_within(self._told_ready, READY_SECONDS)
        self._gate.set()
        self.reconciler.begin()
        self.registry.news.set()
        return failure is None

    async def _repeat(self, step: Callable[[], Awaitable[None]], kind: str) -> None:
        for pause in doubling(FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS):
            if await self._is_done(step, kind):
                return
            await asyncio.sleep(pause)

    # ---- a purge

    async def _purge_once(self) -> None:
        if not await self._is_done(self._purge, "purge"):
            await asyncio.sleep(FIRST_PAUSE_SECONDS)
            await self._repeat(self._look_at_triton if self.registry.is_complete else self._take_over, "purge")

    async def _look_at_triton(self) -> None:
        """After a purge that has failed, where ModelMesh asks no more: what was wrong may be right by now."""
        await self.ports.server.verify()
        self._problem = NOT_PURGED

    async def _purge(self) -> None:
        self.version = await self.ports.server.verify()
        self.reconciler.end()
        for operation in (operations := self.registry.operations()):
            operation.stop(Superseded("ModelMesh has restarted: every model is purged"))
        for operation in operations:
            await operation.ended.wait()
        if len(self.registry):
            self._problem = f"purging: Triton has not freed {some([repr(model.model_id) for model in self.registry], NAMED)} yet"
        try:
            await self.ports.server.purge()
        except Exception:
            await self._give_up_what_is_gone()
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

    async def _give_up_what_is_gone(self) -> None:
        """A purge has ended half way. A model whose directory is gone is loaded no more: the next load takes down what Triton may hold."""
        placed = await self.ports.repository.identities([model.model_id for model in self.registry])
        for model in self.registry:
            is_there = model.placed is not None and placed.get(model.model_id) == model.placed
            if model.state in (State.LOADED, State.LOST) and not is_there:
                self.registry.move(model, State.UNLOADING)
                self.registry.move(model, State.FAILED)

    # ---- a take-over

    async def _take_over(self) -> None:
        """
        Models that serve go on serving, with all that the journal knows of them; those that Triton has lost are loaded again.

        Without a record the content is unknown: the next load of such a model is unload, wait, load. What is half done is
        taken down through Triton, also a directory that it has not loaded: the load may be on its way. What else the earlier process
        has left in the folder is swept at the end, so a sweep that fails costs no model. When it is made again the gate is shut anew:
        what has an operation then, or has had one since the failure, is not touched.
        """
        self._gate.clear()
        known, generation = {model.model_id for model in self.registry}, self.registry.generation
        rows = by_owner(await self.ports.server.index())
        placed = await self.ports.repository.inventory()
        self._problem = NOT_ASKED
        for number, finding in enumerate(findings(self.ports.journal.records, rows, placed)):
            if number % AT_ONCE == AT_ONCE - 1:
                await asyncio.sleep(0)
            if finding.model_id in known or self.ports.repository.is_of_others(finding.model_id):
                continue
            if finding.state is not State.ABSENT and id_problem(finding.model_id, self.reserved_ids) is None:
                await self._enter(finding, generation)
            elif finding.record is not None:
                self.ports.journal.forget(finding.record)
        self.registry.is_complete = True
        states = Counter(model.state for model in self.registry)
        if states[State.LOADED] or states[State.LOST]:
            self._problem = None
            log.info("runtime.taken_over", models=states[State.LOADED], lost=states[State.LOST], half_done=states[State.FAILED])
        await self.ports.repository.sweep()

    async def _enter(self, finding: Finding, generation: int) -> None:
        """
        What is half done is known by its name, and counts for what it may hold, until the reconciler has taken it down.

        A cancel comes before the model is entered, and leaves nothing; or after that, and a purge finds the model.
        """
        record, placed = finding.record, finding.placed
        model = Model(finding.model_id, asked=record, generation=generation, placed=placed.identity if placed else None)
        model.size_bytes = (record.size_bytes if record else 0) or self.facts.adopted(placed.size_bytes if placed else 0)
        if finding.crash is not None:
            log.warning("takeover.crash", model_id=finding.model_id, crashes=self.facts.count_death(finding.crash))
        if record is not None and finding.state is not State.FAILED:
            model.content, model.confirmed = record.content, record.confirmed
            if not record.size_bytes or (record.named is not None and not record.confirmed):  # it was not measured
                model.size_bytes = await self._reported(finding.model_id) or model.size_bytes
            if record.content is not None:
                self.facts.remember(record.content, model.size_bytes)
            if record.artifact_key is not None:
                model.artifact = await self.ports.store.reclaim(record.artifact_key)
        self.registry.move(model, finding.state)
        if record is not None and record.state == finding.state.value:
            model.since = record.since
            self.registry.note(model)

    async def _reported(self, model_id: str) -> int:
        """Bytes that Triton tells of a model, within the bounds of all sizes; 0: none."""
        try:
            reported = await self.ports.server.reported_bytes(model_id)
        except AdapterError as error:
            log.debug("size.unknown", model_id=model_id, cause=error.text)
            return 0
        return self.facts.adopted(0, reported) if reported else 0
