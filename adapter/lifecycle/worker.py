"""
Operations on models, each in a task of its own: a load or a restore brings a model up, an unload or an undo brings it down.

Every step may be cancelled; what is to be undone is read from the model's state. The model is LOADING from the moment in which
Triton is asked; until then there are only files to undo. A Triton that dies between that and the answer is counted against the
content. Does not decide what may begin (`lifecycle`, `reconciler`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import structlog

from adapter.errors import UNEXPECTED, AdapterError, CrashesTriton, Draining, ModelRefused, ServerDied, UnloadUnfinished
from adapter.lifecycle.facts import Facts
from adapter.lifecycle.fetching import Fetching
from adapter.lifecycle.operation import JOURNAL, Kind, Operation, Phase
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.states import State
from adapter.model import ModelSpec, is_untouched
from adapter.ports import Ports
from adapter.serving import LoadedModel
from adapter.settings.kinds import AUTO
from adapter.telemetry.metrics import UNLOADS_UNFINISHED

UNDO_PATIENCE_SECONDS = 2.0
"""
ModelMesh is told of a failed load after its undo, but no later than this: an undo may wait for Triton. The caller of a front
waits for all of it, within the load's budget: then the memory is there for the next load.
"""

UNKNOWN_CONCURRENCY = 16
"""Parallel requests of a model whose config says nothing, where each model has its own limit."""

Steps = Callable[[Operation], Awaitable[LoadedModel | None]]

log = structlog.stdlib.get_logger(__name__)


@dataclass(eq=False)
class Worker:
    """Begins operations and ends them."""

    registry: Registry
    ports: Ports
    fetching: Fetching
    facts: Facts
    max_concurrency: int
    unload_seconds: float
    on_ended: Callable[[Operation], None] = field(init=False)
    """Called when the id of an operation is free again. Set before the first operation, as the next one."""
    on_undo: Callable[[], None] = field(init=False)
    """Called when an operation needs no loading slot any more, since only its undo remains."""

    def load(self, spec: ModelSpec) -> Operation:
        """Begin to load; the id must have no operation."""
        return self._start("load", spec.model_id, self._load, spec)

    def restore(self, model: Model) -> None:
        """Begin to load a LOST model again; it must have no operation."""
        self._start("restore", model.model_id, self._restore)

    def unload(self, model_id: str, *, is_background: bool = False) -> Operation:
        """Begin to unload, for a call or in the background; the id must have no operation."""
        operation = self._start("unload", model_id, partial(self._take_down, phase="unload"))
        operation.is_background = is_background
        return operation

    def unfinished(self, obstacle: str) -> UnloadUnfinished:
        """The error of an unload whose bound has come: Triton has none of its own."""
        return UnloadUnfinished(f"{obstacle}; the model was not freed within {self.unload_seconds:g} s")

    def _start(self, kind: Kind, model_id: str, steps: Steps, spec: ModelSpec | None = None) -> Operation:
        operation = self.registry.begin(kind, model_id, spec)
        operation.task = asyncio.create_task(self._run(operation, steps), name=f"{kind} {model_id}")
        operation.task.add_done_callback(lambda _: self._ended(operation))
        return operation

    async def _run(self, operation: Operation, steps: Steps) -> None:
        outcome: LoadedModel | AdapterError | None
        try:
            outcome = await steps(operation)
        except BaseException as error:  # noqa: BLE001 - every kind of end is told to the callers, and undone
            is_stopped, outcome = operation.is_ending, self._failure(operation, error)
            if operation.kind != "unload":
                await self._undo(operation, outcome, is_stopped=is_stopped)
        operation.settle(outcome)

    def _ended(self, operation: Operation) -> None:
        if not operation.result.done():  # stopped before its first step
            operation.settle(self._failure(operation, asyncio.CancelledError()))
        operation.enter(None)
        self.registry.end(operation)
        self.on_ended(operation)

    def _failure(self, operation: Operation, error: BaseException) -> AdapterError:
        """What the callers are told: why it was stopped, or what went wrong, or that it is a defect of ours."""
        told: AdapterError
        if isinstance(error, asyncio.CancelledError):  # without a reason: the loop ends
            told = operation.outcome or Draining("the adapter is shutting down")
        elif isinstance(error, AdapterError):
            told = error
        else:
            log.error("operation.crashed", model_id=operation.model.model_id, operation=operation.kind, exc_info=error)
            told = AdapterError(UNEXPECTED)
            told.__cause__ = error
        return told.located(operation.model.model_id, operation.slow_phases())

    # ---- up

    async def _load(self, operation: Operation) -> LoadedModel:
        model, spec = operation.model, cast("ModelSpec", operation.spec)
        if model.state in (State.LOADED, State.LOST) and await self._is_kept(operation, spec):
            model.asked, model.confirmed = spec, self.ports.journal.now()
            self.registry.note(model)
            await self._noted(operation)
            return LoadedModel(model.size_bytes, self._concurrency(model))
        await self.ports.repository.claim(model.model_id)
        if model.state is not State.ABSENT or not self.registry.is_complete:
            await self._take_down(operation)
            await self.ports.repository.claim(model.model_id)  # the take-down gave the name back
        self.registry.move(model, State.PULLING)
        layout = await self.fetching.fetch(operation, spec)
        for warning in layout.warnings if spec.named is None else ():  # they tell what ModelMesh does not forward
            log.warning("model.warning", model_id=model.model_id, warning=warning)
        try:
            await self._send(operation)
        except ModelRefused as refused:
            if not layout.hint:
                raise
            raise ModelRefused(f"{refused.text}; {layout.hint}") from refused
        is_told = spec.named is not None or self.facts.is_final(model)
        return LoadedModel(model.size_bytes if is_told else 0, self._concurrency(model))

    def _concurrency(self, model: Model) -> int:
        return (model.concurrency or UNKNOWN_CONCURRENCY) if self.max_concurrency == AUTO else self.max_concurrency

    async def _restore(self, operation: Operation) -> None:
        """From LOST to LOADED, with the files that are placed."""
        model = operation.model
        if model.content is not None:
            self.facts.check_deaths(model.content)
        await self._send(operation)

    async def _is_kept(self, operation: Operation, spec: ModelSpec) -> bool:
        """
        Whether a model is what is asked for, and serves; one that is LOST after it was loaded from the placed files.

        Triton is asked last: its answer is the one that grows old.
        """
        model = operation.model
        operation.enter("check", lambda: self.ports.server.problem or "Triton has not said whether it serves the model")
        if await self.fetching.is_another(operation, spec):
            return False
        if model.state is State.LOADED:
            return await self.ports.server.is_ready(model.model_id)
        try:
            await self._restore(operation)
        except ModelRefused:  # now; it is loaded anew
            await self._take_down(operation)
            return False
        return True

    async def _send(self, operation: Operation) -> None:
        """From PULLING (files placed) or LOST to LOADED."""
        model, server = operation.model, self.ports.server

        async def on_sent() -> None:
            operation.is_sent = True
            model.generation = self.registry.generation
            self.registry.move(model, State.LOADING)
            operation.enter("triton", partial(server.obstacle, model.model_id))
            await self._noted(operation)

        try:
            operation.enter("queue", lambda: server.problem or server.queue())
            await server.load(model.model_id, on_sent, has_limit=operation.kind == "restore")
            reported = await self._measured(operation)
        except ServerDied:
            if model.state is State.LOADING and model.content is not None:
                self.facts.count_death(model.content.crash)
                self.facts.check_deaths(model.content)
            raise
        if model.content is not None:
            self.facts.forget_deaths(model.content)
        self.facts.measured(model, reported)
        if model.model_id not in self.registry.lost:
            model.confirmed = self.ports.journal.now()
        self.registry.move(model, State.LOADED)
        await self._noted(operation)

    async def _measured(self, operation: Operation) -> int:
        """Bytes that Triton reports of the model; a model without statistics must be ready."""
        model_id, server = operation.model.model_id, self.ports.server
        operation.enter("measure", lambda: server.problem or "Triton has not told the size of the model")
        reported = await server.reported_bytes(model_id)
        if reported is None and not await server.is_ready(model_id):
            if is_untouched((await server.index()).get(model_id, ())):
                raise ServerDied("Triton has lost the model just after it had loaded it: it has restarted")
            raise ModelRefused("the model does not serve though Triton has loaded it: its backend has failed")
        return reported or 0

    async def _noted(self, operation: Operation) -> None:
        """Wait until the journal has written what was noted."""
        with operation.waits.on(JOURNAL):
            await self.ports.journal.written()

    # ---- down

    async def _undo(self, operation: Operation, failure: AdapterError, *, is_stopped: bool) -> None:
        """
        Give back whatever a load or restore that has failed may hold. Never raises: what does not work leaves the model FAILED.

        A model that is LOST is left so where the operation was stopped, and where a call has failed before it sent anything.
        """
        loop, model = asyncio.get_running_loop(), operation.model
        operation.outcome, operation.since = failure, loop.time()
        self.on_undo()
        if is_stopped or model.named is None:
            loop.call_later(UNDO_PATIENCE_SECONDS, operation.settle, failure)
        if not is_stopped and (operation.kind == "restore" or model.state is State.LOADING):
            is_crash = isinstance(failure, (ServerDied, CrashesTriton))
            self.registry.count_lost(model, "crashed" if is_crash else "refused", str(failure))
        is_unheard = model.state is State.LOADED and operation.is_sent and operation.kind == "load"  # no caller was told of it
        is_hopeless = model.state is State.LOST and operation.kind == "restore" and not is_stopped
        try:
            if model.state in (State.PULLING, State.LOADING, State.FAILED) or is_unheard or is_hopeless:
                await self._take_down(operation)
        except Exception as trouble:  # noqa: BLE001 - the outcome is known already; the model is FAILED and says so
            log.warning("undo.failed", model_id=model.model_id, state=model.state.value, cause=str(trouble))

    async def _take_down(self, operation: Operation, phase: Phase = "undo") -> None:
        """
        From any state (ABSENT: unknown, so Triton is asked) to ABSENT: memory free, files gone, its artifact given up.

        Of a model that is PULLING Triton was never asked. It is ABSENT before its artifact is given up: a cancel there finds
        nothing to undo.

        Raises:
            AdapterError: it did not work, or not in time; the model is FAILED.
        """
        model = operation.model
        operation.enter(phase, partial(self.ports.server.obstacle, model.model_id))
        if model.state is not State.PULLING:
            self.registry.move(model, State.UNLOADING)
        try:
            await self._noted(operation)
            if model.state is State.UNLOADING:
                await self.free_memory(model.model_id)
            with operation.waits.on("the volume to give up the model's files"):
                await self.ports.repository.remove(model.model_id)
        except BaseException:
            self.registry.move(model, State.FAILED)
            raise
        artifact = model.artifact
        self.registry.move(model, State.ABSENT)
        if artifact is not None:
            await self.ports.store.release(artifact)
        await self._noted(operation)

    async def free_memory(self, model_id: str, *, has_dependents: bool | None = None) -> None:
        """As `ModelServer.unload`, with a bound. Raises UnloadUnfinished, and as that."""
        try:
            async with asyncio.timeout(self.unload_seconds):
                await self.ports.server.unload(model_id, has_dependents=has_dependents)
        except TimeoutError:
            UNLOADS_UNFINISHED.inc()
            obstacle = self.ports.server.obstacle(model_id)
            log.warning("unload.expired", model_id=model_id, cause=obstacle, bound_seconds=self.unload_seconds)
            raise self.unfinished(obstacle) from None
