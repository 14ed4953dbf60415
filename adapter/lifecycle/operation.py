"""
What is known of one model, and the load, unload or restore that is under way for it.

An operation tells where its time went, what it waits for, why it was stopped, and how it ended. It decides nothing; `worker` runs it.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from adapter.errors import AdapterError
from adapter.lifecycle.states import State
from adapter.model import Artifact, Content, ModelSpec, Named, Record
from adapter.ports import Journal
from adapter.serving import LoadedModel
from adapter.telemetry.metrics import PHASE_SECONDS
from adapter.telemetry.redaction import redact
from adapter.waits import Waits

Kind = Literal["load", "unload", "restore"]
"""A restore is a load without a caller: of a model that Triton has lost, from the files that are placed."""
Phase = Literal["check", "list", "pull", "place", "queue", "triton", "measure", "undo", "unload"]
WORTH_TELLING_SECONDS = 0.05
JOURNAL = "the volume to take what the journal writes"
"""What an operation waits for, in words, before a step that others can see."""


@dataclass
class Model:
    """What is known of one model id."""

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
    generation: int = 0
    """Of `Registry.generation`: the last one of which it is known that Triton had the model."""

    @property
    def named(self) -> Named | None:
        """What a front's caller calls it; None: ModelMesh has loaded it."""
        asked = self.spec or self.earlier
        return asked.named if asked else None

    @property
    def is_going(self) -> bool:
        """It is being unloaded or undone, or must be."""
        if self.operation is None:
            return self.state in (State.UNLOADING, State.FAILED)
        return self.operation.kind == "unload" or self.operation.is_ending or self.operation.stopped_by is not None

    def forget_content(self) -> None:
        """The model is gone, and with it all that was known of its content."""
        self.spec = self.earlier = self.content = self.artifact = self.placed = None
        self.size_bytes, self.confirmed = 0, 0.0

    def record(self) -> Record:
        """For the journal: the model as it is now, without secrets."""
        spec, earlier = self.spec, self.earlier
        asked = spec or earlier
        is_thought = spec is not None and spec.named is None and not self.confirmed  # the next process asks Triton for the size
        return Record(
            model_id=self.model_id,
            state=self.state.value,
            since=self.since,
            model_type=asked.model_type if asked else "",
            path=redact(spec.path) if spec else earlier.path if earlier else "",
            storage_key=asked.storage_key if asked else None,
            content=self.content,
            artifact_key=self.artifact.key if self.artifact else None,
            size_bytes=(spec.size_hint_bytes or 0) if spec and is_thought else self.size_bytes,
            placed=self.placed,
            confirmed=self.confirmed,
            named=self.named,
        )


class Operation:
    """A load, an unload or a restore under way, and who waits for it. Times are those of the event loop."""

    def __init__(self, kind: Kind, model: Model, spec: ModelSpec | None = None, deadline: float = math.inf) -> None:
        self._loop = asyncio.get_running_loop()
        self.kind = kind
        self.model = model
        self.spec = spec
        self.deadline = deadline
        """Of an unload: when its call gives up."""
        self.callers: list[float] = []
        """When each call that waits for it gives up."""
        self.waits = Waits(self._loop.time)
        self.result: asyncio.Future[LoadedModel | None] = self._loop.create_future()
        self.ended = asyncio.Event()
        self.outcome: AdapterError | None = None
        """Of a load or restore that is being undone: what its callers will be told."""
        self.stopped_by: AdapterError | None = None
        self.is_background = False
        """An unload without a call: the reconciler has begun it."""
        self.is_again = kind == "restore"
        """It sends the files of a lost model once more."""
        self.was_lost = model.state is State.LOST
        """Triton had lost the model when it began, or was found to have lost it since."""
        self.is_sent = False
        """Triton was asked to load."""
        self.has_crashed = False
        """Triton has died over its load."""
        self._seconds: dict[str, float] = {}
        self._running: tuple[str, float] | None = None
        """The phase, and since when."""
        self._since = self._loop.time()
        self._told_by: Callable[[], str | None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self, work: Coroutine[Any, Any, None], on_end: Callable[[Operation], None]) -> None:
        """Run `work` as a task that no caller's cancellation reaches."""
        self._task = asyncio.create_task(work, name=f"{self.kind} {self.model.model_id}")
        self._task.add_done_callback(lambda _: on_end(self))

    @contextmanager
    def step(self, phase: Phase, told_by: Callable[[], str | None] | None = None) -> Iterator[None]:
        """Count the time inside as this phase's; `told_by` says what the step waits for, where `waits` does not."""
        self._told_by = told_by
        started = self._loop.time()
        self._running = (phase, started)
        try:
            yield
        finally:
            self._told_by = self._running = None
            seconds = self._loop.time() - started
            self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
            PHASE_SECONDS.labels(phase).observe(seconds)

    def phases(self) -> dict[str, float]:
        """Seconds by phase in order, the running one included, rounded to 0.1 ms."""
        found = dict(self._seconds)
        if self._running is not None:
            name, started = self._running
            found[name] = found.get(name, 0.0) + self._loop.time() - started
        return {name: round(seconds, 4) for name, seconds in found.items()}

    def slow_phases(self) -> str:
        """For error texts: `list 0.1 s, pull 26.8 s`; the last one is where it ended, earlier ones are told if they took time."""
        found = list(self.phases().items())
        told = [(name, seconds) for name, seconds in found[:-1] if seconds >= WORTH_TELLING_SECONDS] + found[-1:]
        return ", ".join(f"{name} {seconds:.1f} s" for name, seconds in told)

    @property
    def is_ending(self) -> bool:
        """Only its undo remains: it can neither be joined nor stopped any more."""
        return self.outcome is not None

    @property
    def is_queued_restore(self) -> bool:
        """A restore that Triton was not asked for yet: stopped now, it leaves its model LOST."""
        return self.kind == "restore" and self.model.state is State.LOST

    @property
    def outcome_of_loss(self) -> Literal["restored", "crashed", "refused", "ended"] | None:
        """What came of a model that Triton had lost; None where it had not, or where it is LOST still."""
        if not self.was_lost or self.model.state is State.LOST:
            return None
        if self.has_crashed:
            return "crashed"
        if self.is_again and self.model.state is State.LOADED:
            return "restored"
        is_by_itself = self.kind == "restore" or self.is_background
        return "refused" if is_by_itself and self.stopped_by is None else "ended"

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
        """It has failed, or was stopped."""
        self.outcome = outcome
        self._since = self._loop.time()

    async def noted(self, journal: Journal) -> None:
        """Wait until the journal has written what was noted."""
        with self.waits.on(JOURNAL):
            await journal.written()

    def can_be_joined_by(self, spec: ModelSpec) -> bool:
        """Whether an equal load may share this one."""
        return self.kind == "load" and not self.is_ending and self.stopped_by is None and self.spec == spec

    def stop(self, reason: AdapterError) -> None:
        """Cancel it, once; its callers get `reason`, and a load or restore is undone. An unload that was called for is never stopped."""
        if (self.kind != "unload" or self.is_background) and not self.is_ending and self.stopped_by is None and self._task is not None:
            self.stopped_by = reason
            self._task.cancel()

    def fail(self, error: BaseException) -> None:
        """Tell the callers; the first outcome stays."""
        if not self.result.done():
            self.result.set_exception(error)
            self.result.exception()  # there may be no caller left to retrieve it

    def succeed(self, loaded: LoadedModel | None) -> None:
        """Tell the callers."""
        if not self.result.done():
            self.result.set_result(loaded)

    def __str__(self) -> str:
        """For texts: `the unload of 'a', under way for 40.0 s (version 1 has been UNLOADING for 39 s)`."""
        what = f"undo of the {self.kind}" if self.is_ending else self.kind
        why = f" ({obstacle})" if (obstacle := self.obstacle) else ""
        return f"the {what} of {self.model.model_id!r}, under way for {self._loop.time() - self._since:.1f} s{why}"
