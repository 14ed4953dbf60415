"""
All state of the lifecycle: the models by id, and the one operation that each may have.

Invariants: one operation per model id at a time; a model leaves the table when it is ABSENT and without an operation; decisions
are synchronous, so nothing can happen between a question and its answer. Nothing here waits, pulls or talks to Triton.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import structlog

from adapter.lifecycle.operation import Kind, Operation
from adapter.lifecycle.states import MOVES, IllegalMoveError, State
from adapter.model import Artifact, ModelSpec, Named
from adapter.ports import Journal, Memory
from adapter.records import Content, Record
from adapter.telemetry import metrics
from adapter.telemetry.redaction import redact

log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class Model:
    """What is known of one model id."""

    model_id: str
    state: State = State.ABSENT
    since: float = 0.0
    """When it came into its state, by the journal's clock."""
    asked: ModelSpec | Record | None = None
    """What was asked for: of this process, or of an earlier one, as that wrote it."""
    content: Content | None = None
    """None while unknown: adopted from Triton's index after a restart of the adapter, without a record."""
    artifact: Artifact | None = None
    placed: str | None = None
    """Identity of its directory in Triton's repository folder."""
    size_bytes: int = 0
    concurrency: int = 0
    """Parallel requests that it can use; 0: unknown."""
    confirmed: float = 0.0
    """When it was loaded, or confirmed by an equal load, by the journal's clock."""
    operation: Operation | None = None
    generation: int = 0
    """Of `Registry.generation`: the last one of which it is known that Triton had the model."""
    pause_seconds: float = 0.0
    """How long it was last left alone as FAILED."""
    is_paused: bool = False
    """It is FAILED, and left alone now."""

    @property
    def named(self) -> Named | None:
        """What a front's caller calls it; None: ModelMesh has loaded it. A load under way counts more than what it replaces."""
        asked = self.asked if self.operation is None else self.operation.spec or self.asked
        return asked.named if asked else None

    @property
    def given_bytes(self) -> int:
        """The size that ModelMesh gave with it; 0: none, or another process or a front has loaded it."""
        return (self.asked.size_hint_bytes or 0) if isinstance(self.asked, ModelSpec) and self.asked.named is None else 0

    @property
    def is_going(self) -> bool:
        """It is being unloaded or undone, or must be."""
        if self.operation is None:
            return self.state in (State.UNLOADING, State.FAILED)
        return self.operation.kind == "unload" or self.operation.is_ending

    def record(self) -> Record:
        """For the journal: the model as it is now, without secrets."""
        asked, size_bytes = self.asked, self.size_bytes
        if isinstance(asked, ModelSpec) and asked.named is None and not self.confirmed:
            size_bytes = self.given_bytes  # others are estimates: the next process asks Triton
        return Record(
            model_id=self.model_id,
            state=self.state.value,
            since=self.since,
            model_type=asked.model_type if asked else "",
            path=redact(asked.path) if asked else "",
            storage_key=asked.storage_key if asked else None,
            content=self.content,
            artifact_key=self.artifact.key if self.artifact else None,
            size_bytes=size_bytes,
            placed=self.placed,
            confirmed=self.confirmed,
            named=self.named,
        )


class Registry:
    """The table of models. Each change of a state is noted in the journal."""

    def __init__(self, journal: Journal, memory: Memory) -> None:
        self._journal = journal
        self._memory = memory
        self._models: dict[str, Model] = {}
        self._operations: dict[str, Operation] = {}
        self._by_state: dict[State, dict[str, Model]] = {state: {} for state in State}
        self.lost: dict[str, Model] = {}
        """By id: those that Triton has lost and that have not come back, as long as nothing else has come of them."""
        self.is_complete = False
        """False until Triton's index was read or purged: what is not in the table may be loaded all the same."""
        self.changes = 0
        """Grows with each operation, change of a state and return of Triton: while it stays the same, nothing has happened."""
        self.generation = 0
        """Grows each time that Triton returns: what a model's load was answered before may be lost."""
        for state in set(State) - {State.ABSENT}:
            metrics.MODELS.labels(state.value).set_function(partial(len, self._by_state[state]))
        metrics.RESTORE_PENDING.set_function(partial(len, self.lost))
        metrics.LOADED_BYTES.set_function(self.loaded_bytes)

    def find(self, model_id: str) -> Model | None:
        """The model, or None when it is ABSENT and idle."""
        return self._models.get(model_id)

    def operation_on(self, model_id: str) -> Operation | None:
        """What is under way for this id."""
        model = self._models.get(model_id)
        return model.operation if model else None

    def begin(self, kind: Kind, model_id: str, spec: ModelSpec | None = None) -> Operation:
        """Claim an id that has no operation. Raises IllegalMoveError when it has one."""
        model = self._models.setdefault(model_id, Model(model_id))
        if model.operation is not None:
            raise IllegalMoveError(f"{kind} cannot begin: a {model.operation.kind} of the model is under way")
        model.operation = self._operations[model_id] = Operation(kind, model, spec)
        self.changes += 1
        return model.operation

    def end(self, operation: Operation) -> None:
        """Give the id free."""
        model = operation.model
        model.operation = None
        del self._operations[model.model_id]
        self.changes += 1
        self._drop_if_absent(model)

    def move(self, model: Model, state: State) -> None:
        """Change its state. Raises IllegalMoveError and changes nothing where that cannot be."""
        if (model.state, state) not in MOVES:
            raise IllegalMoveError(f"a model that is {model.state.name} cannot become {state.name}")
        self._by_state[model.state].pop(model.model_id, None)
        model.state = state
        if state is not State.ABSENT:
            self._by_state[state][model.model_id] = model
        model.since = self._journal.now()
        self._memory.moved(model.model_id, state.value, model.size_bytes)
        self.changes += 1
        if state is State.LOST:
            self.lost[model.model_id] = model
        elif state is State.LOADED:
            self.count_lost(model, "restored")
        elif state is State.ABSENT:  # what was known of its content is gone with it
            self.count_lost(model, "ended")
            model.asked = model.content = model.artifact = model.placed = None
            model.size_bytes, model.confirmed, model.pause_seconds = 0, 0.0, 0.0
        if state is not State.PULLING:  # a directory without a record is taken down by the next process
            self.note(model)
        self._models.setdefault(model.model_id, model)
        self._drop_if_absent(model)

    def count_lost(self, model: Model, outcome: Literal["restored", "crashed", "refused", "ended"], cause: str = "") -> None:
        """Tell what has come of a model, if it is one that Triton has lost; the first outcome counts. `cause`: of a failure."""
        if self.lost.pop(model.model_id, None) is not None:
            metrics.RESTORES.labels(outcome).inc()
            if cause:
                log.warning("restore.failed", model_id=model.model_id, outcome=outcome, cause=cause)

    def note(self, model: Model) -> None:
        """Tell the journal what is known of the model now."""
        tell = self._journal.forget if model.state is State.ABSENT else self._journal.note
        tell(model.record())

    def operations(self) -> list[Operation]:
        """Everything under way."""
        return list(self._operations.values())

    def all_in(self, state: State) -> list[Model]:
        """The models in this state."""
        return list(self._by_state[state].values())

    def loaded_bytes(self) -> int:
        """The sum of the sizes of loaded models."""
        return sum(model.size_bytes for model in self.all_in(State.LOADED))

    def __iter__(self) -> Iterator[Model]:
        return iter(list(self._models.values()))

    def __len__(self) -> int:
        return len(self._models)

    def _drop_if_absent(self, model: Model) -> None:
        if model.state is State.ABSENT and model.operation is None:
            self._models.pop(model.model_id, None)
