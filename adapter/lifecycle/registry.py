"""
All state of the lifecycle: the models by id, and the one operation that each may have.

Invariants: one operation per model id at a time; a model leaves the table when it is ABSENT and no
operation holds it; decisions are synchronous, so nothing can happen between a question and its
answer. Nothing here waits, pulls or talks to Triton.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from adapter.errors import AdapterError
from adapter.lifecycle.phases import Phases
from adapter.lifecycle.states import Event, IllegalTransitionError, State, next_state
from adapter.model import Artifact, Listing, LoadedModel, ModelSpec
from adapter.telemetry import metrics


@dataclass
class Model:
    """What we know of one model id."""

    model_id: str
    state: State = State.ABSENT
    spec: ModelSpec | None = None
    """None while unknown: adopted from Triton's index after a restart of the adapter."""
    listing: Listing | None = None
    artifact: Artifact | None = None
    size_bytes: int = 0
    operation: Operation | None = None

    def forget_content(self) -> None:
        """The model is gone: so is all we knew of its content."""
        self.spec = self.listing = self.artifact = None
        self.size_bytes = 0


class Operation:
    """A load or an unload under way, and who waits for it."""

    def __init__(self, kind: Literal["load", "unload"], model: Model, spec: ModelSpec | None) -> None:
        self.kind = kind
        self.model = model
        self.spec = spec
        self.callers = 0
        self.phases = Phases()
        self.result: asyncio.Future[LoadedModel | None] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.is_ending = False
        """Set when the outcome is known and only the undo remains: nobody may join or stop it any more."""
        self.stopped_by: AdapterError | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None], on_end: Callable[[Operation], None]) -> None:
        """Run `work` as a task that no caller's cancellation reaches."""
        self._task = asyncio.create_task(work, name=f"{self.kind} {self.model.model_id}")
        self._task.add_done_callback(lambda _: on_end(self))

    def can_be_joined_by(self, spec: ModelSpec) -> bool:
        """Whether an equal load may share this one."""
        return self.kind == "load" and not self.is_ending and self.stopped_by is None and self.spec == spec

    def stop(self, reason: AdapterError) -> None:
        """Cancel the load, once; its callers get `reason` and it is undone. An unload is never stopped."""
        if self.kind == "load" and not self.is_ending and self.stopped_by is None and self._task is not None:
            self.stopped_by = reason
            self._task.cancel()

    def fail(self, error: BaseException) -> None:
        """Tell the callers; the first outcome stays."""
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()  # nobody may be left to retrieve it

    def succeed(self, loaded: LoadedModel | None) -> None:
        """Tell the callers."""
        if not self.result.done():
            self.result.set_result(loaded)


class Registry:
    """The table of models."""

    def __init__(self) -> None:
        self._models: dict[str, Model] = {}
        self.is_complete = False
        """False until Triton's index was read or purged: what is not in the table may be loaded all the same."""
        for state in set(State) - {State.ABSENT}:
            metrics.MODELS.labels(state.value).set_function(partial(self._count, state))
        metrics.LOADED_BYTES.set_function(self._loaded_bytes)

    def find(self, model_id: str) -> Model | None:
        """The model, or None when it is ABSENT and idle."""
        return self._models.get(model_id)

    def operation_on(self, model_id: str) -> Operation | None:
        """What is under way for this id."""
        model = self._models.get(model_id)
        return model.operation if model else None

    def begin(self, kind: Literal["load", "unload"], model_id: str, spec: ModelSpec | None) -> Operation:
        """Claim an id that has no operation. Raises IllegalTransitionError when it has one."""
        model = self._models.setdefault(model_id, Model(model_id))
        if model.operation is not None:
            raise IllegalTransitionError(f"{kind} cannot begin: a {model.operation.kind} of the model is under way")
        model.operation = Operation(kind, model, spec)
        return model.operation

    def end(self, operation: Operation) -> None:
        """Give the id free and wake who waits for it."""
        model = operation.model
        model.operation = None
        self._drop_if_absent(model)
        operation.ended.set()

    def fire(self, model: Model, event: Event) -> None:
        """Apply an event. Raises IllegalTransitionError and changes nothing when the table does not list it."""
        model.state = next_state(model.state, event)
        if model.state is State.ABSENT:
            model.forget_content()
        self._models.setdefault(model.model_id, model)
        self._drop_if_absent(model)

    def operations(self) -> list[Operation]:
        """Everything under way."""
        return [model.operation for model in self._models.values() if model.operation]

    def __iter__(self) -> Iterator[Model]:
        return iter(list(self._models.values()))

    def __len__(self) -> int:
        return len(self._models)

    def __repr__(self) -> str:
        states = Counter(model.state.value for model in self)
        running = Counter(operation.kind for operation in self.operations())
        return f"<Registry {dict(states)} running {dict(running)}>"

    def _drop_if_absent(self, model: Model) -> None:
        if model.state is State.ABSENT and model.operation is None:
            self._models.pop(model.model_id, None)

    def _count(self, state: State) -> int:
        return sum(model.state is state for model in self)

    def _loaded_bytes(self) -> int:
        return sum(model.size_bytes for model in self if model.state is State.LOADED)
