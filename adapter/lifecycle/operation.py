"""
What we know of one model, and the load, unload or restore that is under way for it.

An operation owns what it can tell of itself: where its time went, what it waits for, who stopped it,
how it ended. It decides nothing and asks nobody; `work` runs it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from adapter.errors import AdapterError
from adapter.lifecycle.phases import Phase, Phases
from adapter.lifecycle.states import State
from adapter.model import Artifact, Content, LoadedModel, ModelSpec, Named, Record
from adapter.waits import Waits

Kind = Literal["load", "unload", "restore"]
"""A restore is a load that nobody has called for: of a model that Triton has lost, from the files that are placed."""


JOURNAL = "the volume to take what the journal writes"
"""What an operation waits for, in words, before a step that others can see."""


@dataclass
class Model:
    """What we know of one model id."""

    model_id: str
    state: State = State.ABSENT
    since: float = 0.0
    """When it came into its state, by the journal's clock."""
    spec: ModelSpec | None = None
    """What was asked for, where this process was asked."""
    earlier: Record | None = None
    """What an earlier process wrote of it, where that process loaded the model."""
    content: Content | None = None
    """None while unknown: adopted from Triton's index after a restart of the adapter, without a record."""
    artifact: Artifact | None = None
    placed: str | None = None
    """Identity of its directory in Triton's repository folder."""
    size_bytes: int = 0
    confirmed: float = 0.0
    """When it was loaded, or confirmed by an equal load, by the journal's clock."""
    operation: Operation | None = None
    changes: int = 0
    """How often its state has changed: equal counts mean that nothing has happened in between."""

    @property
    def named(self) -> Named | None:
        """Who loaded it is a front: what its caller calls it."""
        asked = self.spec or self.earlier
        return asked.named if asked else None

    @property
    def is_going(self) -> bool:
        """Whether it is being unloaded or undone, or must be: nothing of it is of use to anybody."""
        if self.operation is None:
            return self.state in (State.UNLOADING, State.FAILED)
        return self.operation.kind == "unload" or self.operation.is_ending or self.operation.stopped_by is not None

    def forget_content(self) -> None:
        """The model is gone: so is all we knew of its content."""
        self.spec = self.earlier = self.content = self.artifact = self.placed = None
        self.size_bytes, self.confirmed = 0, 0.0


class Operation:
    """A load, an unload or a restore under way, and who waits for it."""

    def __init__(self, kind: Kind, model: Model, spec: ModelSpec | None = None, deadline: float = math.inf) -> None:
        self._loop = asyncio.get_running_loop()
        self.kind = kind
        self.model = model
        self.spec = spec
        self.deadline = deadline
        """Of an unload: when its call gives up, by the clock of the loop."""
        self.callers: list[float] = []
        """When each call that waits for it gives up, by the clock of the loop."""
        self.phases = Phases()
        self.waits = Waits(self._loop.time)
        self.result: asyncio.Future[LoadedModel | None] = self._loop.create_future()
        self.ended = asyncio.Event()
        self.is_ending = False
        self.outcome: AdapterError | None = None
        """Of a load or restore that is being undone: what its callers will be told."""
        self.stopped_by: AdapterError | None = None
        self.is_again = kind == "restore"
        """Whether it sends the files of a lost model once more."""
        self.sent_at: float | None = None
        """When Triton was asked to load, by the clock of the loop."""
        self.has_crashed = False
        """Whether Triton has died over its load."""
        self.has_loaded = False
        """Whether it has brought its model to LOADED, so that an undo must take it down."""
        self._since = self._loop.time()
        self._told_by: Callable[[], str | None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None], on_end: Callable[[Operation], None]) -> None:
        """Run `work` as a task that no caller's cancellation reaches."""
        self._task = asyncio.create_task(work, name=f"{self.kind} {self.model.model_id}")
        self._task.add_done_callback(lambda _: on_end(self))

    def told_sent(self) -> None:
        """Note that Triton is asked to load now."""
        self.sent_at = self._loop.time()

    @contextmanager
    def step(self, phase: Phase, told_by: Callable[[], str | None] | None = None) -> Iterator[None]:
        """Count the time inside as this phase's; `told_by` says what the step waits for, where `waits` does not."""
        self._told_by = told_by
        try:
            with self.phases.phase(phase):
                yield
        finally:
            self._told_by = None

    @property
    def is_queued_restore(self) -> bool:
        """Whether it is a restore that Triton was not asked for yet: stopped now, it leaves its model LOST."""
        return self.kind == "restore" and self.model.state is State.LOST

    @property
    def obstacle(self) -> str | None:
        """What the operation is waiting for now, in words."""
        return self.waits.words() or (self._told_by() if self._told_by else None)

    @contextmanager
    def joined(self, until: float) -> Iterator[None]:
        """While inside, a call waits for it, at most until then: for as long as any does, it may wait for storage."""
        self.callers.append(until)
        self.waits.until = max(self.callers)
        try:
            yield
        finally:
            self.callers.remove(until)
            self.waits.until = max(self.callers, default=until)

    def begin_undo(self, outcome: AdapterError) -> None:
        """Only the undo remains: nobody may join or stop it any more."""
        self.is_ending, self.outcome = True, outcome
        self._since = self._loop.time()

    def can_be_joined_by(self, spec: ModelSpec) -> bool:
        """Whether an equal load may share this one."""
        return self.kind == "load" and not self.is_ending and self.stopped_by is None and self.spec == spec

    def stop(self, reason: AdapterError) -> None:
        """Cancel the load or restore, once; its callers get `reason` and it is undone. An unload is never stopped."""
        if self.kind != "unload" and not self.is_ending and self.stopped_by is None and self._task is not None:
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

    def __str__(self) -> str:
        """For texts: `the unload of 'a', under way for 40.0 s (version 1 has been UNLOADING for 39 s)`."""
        what = f"undo of the {self.kind}" if self.is_ending else self.kind
        why = f" ({obstacle})" if (obstacle := self.obstacle) else ""
        return f"the {what} of {self.model.model_id!r}, under way for {self._loop.time() - self._since:.1f} s{why}"
