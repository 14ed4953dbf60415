"""
What a process finds at its start, and what becomes of it.

A record of the journal is believed only where the folder still holds the very directory that it tells of: a model that was placed
again meanwhile, without a note in this journal, is another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import structlog

from adapter.errors import AdapterError
from adapter.lifecycle.facts import Facts
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.model import Placed, Rows, ServerModel, id_problem, is_untouched, serves
from adapter.ports import Ports
from adapter.records import Record
from adapter.waits import by_turns

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
class TakeOver:
    """Enters what is found."""

    registry: Registry
    ports: Ports
    facts: Facts
    reserved_ids: Collection[str]

    async def run(self) -> bool:
        """
        Models that serve go on serving, with all that the journal knows of them; those that Triton has lost are loaded again.

        Without a record the content is unknown: the next load of such a model is unload, wait, load. What is half done is
        taken down through Triton, also a directory that it has not loaded: the load may be on its way. What else the earlier process
        has left in the folder is swept at the end, so a sweep that fails costs no model. When a take-over is made again, what has an
        operation, or has had one since the failure, is not touched.

        Returns:
            Whether there is any model that serves, or will serve.

        Raises:
            AdapterError: what Triton or the folder has is not known.
        """
        known, generation = {model.model_id for model in self.registry}, self.registry.generation
        rows = await self.ports.server.index()
        placed = await self.ports.repository.inventory()
        async for finding in by_turns(findings(self.ports.journal.records, rows, placed)):
            if finding.model_id in known or self.ports.repository.is_of_others(finding.model_id):
                continue
            if finding.state is not State.ABSENT and id_problem(finding.model_id, self.reserved_ids) is None:
                await self._enter(finding, generation)
            elif finding.record is not None:
                self.ports.journal.forget(finding.record)
        self.registry.is_complete = True
        states = Counter(model.state for model in self.registry)
        is_any = bool(states[State.LOADED] or states[State.LOST])
        if is_any:
            log.info("runtime.taken_over", models=states[State.LOADED], lost=states[State.LOST], half_done=states[State.FAILED])
        await self.ports.repository.sweep()
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
