"""
What Triton's index and the folder say of the models: what a process finds at its start, which are lost, and whether all agree.

At the start a record of the journal is believed only where the folder still holds the very directory that it tells of: a model that
was placed again meanwhile, without a note in this journal, is another one. A comparison never acts: a metric, and a log line when the
picture changes. One during which anything has happened proves nothing. Each look is one call of the index, which costs all others (it
holds the lock that inference needs).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import get_args

import structlog

from adapter.errors import AdapterError, some
from adapter.lifecycle.facts import Facts
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.lifecycle.worker import Worker
from adapter.model import Drift, Placed, Rows, ServerModel, drift_of, id_problem, is_untouched, serves
from adapter.ports import Ports
from adapter.records import Record
from adapter.telemetry.metrics import INVENTORY_DRIFT

LOOK_SECONDS, DRIFT_SECONDS, BUSY_SECONDS = 60.0, 5.0, 15.0
"""
Between looks; after one that has found a disagreement, since the metric shall not outlive the trouble; and after one that proved
nothing.
"""
NAMED = 5
"""Models of a kind that are named in the log."""

Picture = dict[Drift, list[str]]
"""Kind of disagreement → model ids."""

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


def findings(records: Mapping[str, Record], rows: Rows, placed: Mapping[str, Placed]) -> list[Finding]:
    """
    One for each id that the journal or Triton's index knows. A directory that neither knows is not ours to touch. Pure.

    Args:
        records: of an earlier process, by model id.
        rows: of the index.
        placed: the repository folder, by model id.
    """
    known = {name: record for name, record in records.items() if name in placed and record.placed == placed[name].identity}
    has_restarted = any(record.state == "loaded" and is_untouched(rows.get(name, ())) for name, record in known.items())
    found = []
    for name in dict.fromkeys((*rows, *records)):
        record, listed, crash = known.get(name), rows.get(name, ()), None
        if not listed and name not in placed:
            state, record = State.ABSENT, records.get(name)
        elif has_restarted and record is not None and record.state == "loading" and is_untouched(listed):
            state, crash = State.FAILED, record.content.crash if record.content else None
        else:
            state = _state_of(name, record, listed)
        found.append(Finding(name, state, record, placed.get(name), crash))
    return found


def _state_of(model_id: str, record: Record | None, rows: Sequence[ServerModel]) -> State:
    """
    A model is LOST if a caller was told that it is loaded, and none has unloaded it.

    A model that an earlier process was about to load *again* had been loaded before (`confirmed`). One that was to be loaded
    for the first time belongs to a call that has ended, and the load of one that Triton is loading now cannot be followed.
    """
    if serves(model_id, rows):
        return State.FAILED if record is not None and record.state in ("unloading", "failed") else State.LOADED
    if record is None or not is_untouched(rows):
        return State.FAILED
    return State.LOST if record.state in ("loaded", "lost") or (record.state == "loading" and record.confirmed) else State.FAILED


@dataclass(eq=False)
class Looks:
    """Looks, and enters in the table what is found."""

    registry: Registry
    ports: Ports
    facts: Facts
    worker: Worker
    reserved_ids: Collection[str]
    other: int = 0
    """The last generation of Triton that is certainly another process than the one before."""
    _generation: int = 0
    """Of the last look."""
    _picture: Picture = field(default_factory=dict)

    def __post_init__(self) -> None:
        _show({})

    # ---- at the start

    async def take_over(self) -> bool:
        """
        Models that serve go on serving, with all that the journal knows of them; those that Triton has lost are loaded again.

        Without a record the content is unknown: the next load of such a model is unload, wait, load. What is half done is
        taken down through Triton, also a directory that it has not loaded: the load may be on its way. What else the earlier process
        has left in the folder is swept at the end; a sweep that fails costs no model. When a take-over is made again, what has an
        operation, or has had one since the failure, is not touched.

        Returns:
            Whether there is any model that serves, or will serve.

        Raises:
            AdapterError: what Triton or the folder has is not known.
        """
        known, generation = {model.model_id for model in self.registry}, self.registry.generation
        rows = await self.ports.server.index()
        placed = await self.ports.repository.inventory()
        for finding in findings(self.ports.journal.records, rows, placed):
            if finding.model_id in known or self.ports.repository.is_of_others(finding.model_id):
                continue
            if finding.state is not State.ABSENT and id_problem(finding.model_id, self.reserved_ids) is None:
                await self._enter(finding, generation)
            elif finding.record is not None:
                if finding.state is State.ABSENT:
                    await self.ports.repository.remove(finding.model_id)  # the name is free for others
                self.ports.journal.forget(finding.record)
        self.registry.is_complete = True
        states = Counter(model.state for model in self.registry)
        is_any = bool(states[State.LOADED] or states[State.LOST])
        if is_any:
            log.info("runtime.taken_over", models=states[State.LOADED], lost=states[State.LOST], half_done=states[State.FAILED])
        try:
            await self.ports.repository.sweep()
        except AdapterError as failure:  # a listing that fails sweeps again
            log.warning("takeover.not_swept", cause=failure.text)
        return is_any

    async def _enter(self, finding: Finding, generation: int) -> None:
        """
        What is half done is known by its name, and counts for what it may hold, until it is taken down.

        A cancel comes before the model is entered, and leaves nothing; or after that, and a purge finds the model.
        """
        record, placed = finding.record, finding.placed
        model = Model(finding.model_id, asked=record, generation=generation, placed=placed.identity if placed else None)
        model.confirmed = (record.confirmed if record else 0.0) or self.ports.journal.now()
        model.size_bytes = (record.size_bytes if record else 0) or self.facts.adopted(placed.size_bytes if placed else 0)
        if finding.crash is not None:
            log.warning("takeover.crash", model_id=finding.model_id, crashes=self.facts.count_death(finding.crash))
        if record is not None and finding.state is not State.FAILED:
            model.content = record.content
            if not record.size_bytes or (record.named is not None and not record.confirmed):  # it was not measured
                with suppress(AdapterError):  # Triton does not tell
                    if reported := await self.ports.server.reported_bytes(finding.model_id):
                        model.size_bytes = self.facts.adopted(0, reported)
            if record.content is not None:
                self.facts.remember(record.content, model.size_bytes)
            if record.artifact_key is not None:
                model.artifact = await self.ports.store.reclaim(record.artifact_key)
        self.registry.move(model, finding.state)
        if record is not None and record.state == finding.state.value:
            model.since = record.since
            self.registry.note(model)

    # ---- while the gate is open

    def is_suspect(self, model: Model) -> bool:
        """Triton has returned since it was known to have the model; what an operation holds is looked at when that has ended."""
        return model.state is State.LOADED and model.operation is None and model.generation < self.registry.generation

    async def look(self) -> float:
        """
        Find models that are lost; where none is, and nothing happens meanwhile, compare. Returns seconds until the next look.

        Raises:
            AdapterError: Triton or the folder does not tell.
        """
        generation, changes = self.registry.generation, self.registry.changes
        suspects = [model for model in self.registry.all_in(State.LOADED) if self.is_suspect(model)]
        is_quiet = not self.registry.operations() and self.ports.server.problem is None
        if not suspects and not is_quiet and generation == self._generation:
            return BUSY_SECONDS
        rows = await self.ports.server.index()
        if suspects or self.ports.server.problem is not None:
            await self._judge(suspects, generation, rows)
        self._generation = generation
        if not is_quiet or self.registry.changes != changes:
            return BUSY_SECONDS
        placed = await self.ports.repository.inventory()
        if self.registry.changes != changes:
            return BUSY_SECONDS
        return self._compare(rows, placed)

    async def _judge(self, suspects: Sequence[Model], generation: int, rows: Rows) -> None:
        """
        What an operation holds meanwhile stays suspect, and after a return of Triton what was not lost before.

        Asked of a Triton that is ours: one with another repository has lost nothing, and can be given nothing.
        """
        missing = [model for model in suspects if not any(row.state for row in rows.get(model.model_id, ()))]
        placed: Mapping[str, str] = {}
        if missing or self.ports.server.problem is not None:
            await self.ports.server.verify()
            placed = await self.ports.repository.identities([model.model_id for model in missing])
        lost = {
            model
            for model in missing
            if is_untouched(rows.get(model.model_id, ())) or (model.model_id not in rows and model.generation < self.other)
        }
        if lost:
            self.ports.server.confirm_restart()
            log.warning("restore.begun", models=len(lost))
        for model in suspects:
            if not self.is_suspect(model) or model.generation >= generation:  # unloaded, or loaded anew, since the question
                continue
            if model in lost:
                self.registry.move(model, State.LOST)
                if placed.get(model.model_id) != model.placed:
                    self.registry.count_lost(model, "refused", "its directory is not the one that was placed")
                    self.worker.unload(model.model_id, is_background=True)
            elif generation == self.registry.generation:
                model.generation = generation

    def _compare(self, rows: Rows, placed: Mapping[str, Placed]) -> float:
        states = {model.model_id: model.state.value for model in self.registry}
        picture: Picture = defaultdict(list)
        for model_id in sorted({*states, *rows, *placed}):
            is_ours = model_id in states or not self.ports.repository.is_of_others(model_id)
            drift = drift_of(model_id, states.get(model_id), rows.get(model_id, ()), placed.get(model_id))
            if drift and is_ours and id_problem(model_id, self.reserved_ids) is None:
                picture[drift].append(model_id)
        _show(picture)
        if picture != self._picture:
            if picture:
                log.warning("inventory.drift", **{kind: some([*map(repr, names)], NAMED) for kind, names in picture.items()})
            else:
                log.info("inventory.agrees")
        self._picture = picture
        return DRIFT_SECONDS if picture else LOOK_SECONDS


def _show(picture: Picture) -> None:
    for kind in get_args(Drift):
        INVENTORY_DRIFT.labels(kind).set(len(picture.get(kind, ())))
