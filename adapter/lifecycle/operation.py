"""
A load, an unload or a restore under way for one model.

It tells where its time went, what it waits for, why it was stopped, and how it ended. It decides nothing; `worker` runs it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Literal

import structlog

from adapter.errors import AdapterError
from adapter.lifecycle.states import State
from adapter.model import ModelSpec
from adapter.serving import LoadedModel
from adapter.telemetry.metrics import LOAD_BYTES, PHASE_SECONDS
from adapter.waits import Waits

if TYPE_CHECKING:
    from adapter.lifecycle.registry import Model

Kind = Literal["load", "unload", "restore"]
"""A restore is a load without a caller: of a model that Triton has lost, from the files that are placed."""
Phase = Literal["check", "list", "pull", "place", "queue", "triton", "measure", "undo", "unload"]
WORTH_TELLING_SECONDS = 0.05
LOG_SECONDS = 10.0
"""Between two lines of the log on one pull."""
BYTES = ("done", "expected")
"""Of a pull."""
JOURNAL = "the volume to take what the journal writes"
"""What an operation waits for, in words, before a step that others can see."""


log = structlog.stdlib.get_logger(__name__)


class Operation:
    """A load, an unload or a restore under way, and who waits for it. Times are those of the event loop."""

    task: asyncio.Task[None]
    """No caller's cancellation reaches it. When it has ended the id is free again."""
    _timer: asyncio.TimerHandle
    """Of the next line in the log, during a pull."""

    def __init__(self, kind: Kind, model: Model, spec: ModelSpec | None = None) -> None:
        self._loop = asyncio.get_running_loop()
        self.kind = kind
        self.model = model
        self.spec = spec
        self.callers: list[float] = []
        """When each call that waits for it gives up."""
        self.waits = Waits(self._loop.time)
        self.result: asyncio.Future[LoadedModel | None] = self._loop.create_future()
        self.outcome: AdapterError | None = None
        """Why it was stopped, or has failed: only its undo remains. Its callers will be told."""
        self.is_background = False
        """An unload without a call."""
        self.is_sent = False
        """Triton was asked to load."""
        self._seconds: dict[str, float] = {}
        self._phase: Phase | None = None
        self._entered = 0.0
        self.since = self._loop.time()
        """When it, or its undo, began."""
        self._told_by: Callable[[], str | None] | None = None

    def enter(self, phase: Phase | None, told_by: Callable[[], str | None] | None = None) -> None:
        """Begin this phase, which ends the one before; `told_by` says what it waits for, where `waits` does not."""
        now = self._loop.time()
        if self._phase is not None:
            self._seconds[self._phase] = self._seconds.get(self._phase, 0.0) + now - self._entered
            PHASE_SECONDS.labels(self._phase).observe(now - self._entered)
        if self._phase == "pull":
            self._timer.cancel()
            for kind in BYTES:
                LOAD_BYTES.remove(self.model.model_id, kind)
        if phase == "pull":
            self._timer = self._loop.call_later(LOG_SECONDS, self._log_pull)
            for at, kind in enumerate(BYTES):
                LOAD_BYTES.labels(self.model.model_id, kind).set_function(partial(lambda at: self.waits.progress()[at], at))
        self._phase, self._entered, self._told_by = phase, now, told_by

    def _log_pull(self) -> None:
        done, expected = self.waits.progress()
        log.info("load.progress", model_id=self.model.model_id, done_bytes=done, expected_bytes=expected)
        self._timer = self._loop.call_later(LOG_SECONDS, self._log_pull)

    def phases(self) -> dict[str, float]:
        """Seconds by phase in order, the running one included, rounded to 0.1 ms."""
        found = dict(self._seconds)
        if self._phase is not None:
            found[self._phase] = found.get(self._phase, 0.0) + self._loop.time() - self._entered
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
    def has_slot(self) -> bool:
        """It has one of Triton's loading slots, or is the next to get one."""
        return self._phase in ("queue", "triton")

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

    def can_be_joined_by(self, spec: ModelSpec) -> bool:
        """Whether an equal load may share this one."""
        return self.kind == "load" and not self.is_ending and self.spec == spec

    def stop(self, reason: AdapterError) -> None:
        """Cancel it, once; its callers get `reason`, and a load or restore is undone. An unload that was called for is never stopped."""
        if (self.kind != "unload" or self.is_background) and not self.is_ending:
            self.outcome = reason
            self.task.cancel()

    async def wait(self) -> None:
        """Return when the id is free again."""
        await asyncio.wait({self.task})

    def settle(self, outcome: LoadedModel | AdapterError | None) -> None:
        """Tell the callers; the first outcome stays."""
        if self.result.done():
            return
        if isinstance(outcome, AdapterError):
            self.result.set_exception(outcome)
            self.result.exception()  # there may be no caller left to retrieve it
        else:
            self.result.set_result(outcome)

    def __str__(self) -> str:
        """For texts: `the unload of 'a', under way for 40.0 s (version 1 has been UNLOADING for 39 s)`."""
        what = f"undo of the {self.kind}" if self.is_ending else self.kind
        why = f" ({obstacle})" if (obstacle := self.obstacle) else ""
        return f"the {what} of {self.model.model_id!r}, under way for {self._loop.time() - self.since:.1f} s{why}"
