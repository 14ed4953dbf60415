"""
Operations from their beginning to their end: each runs in a task of its own, and its callers are told.

Owns what happens to a load or restore that fails or is stopped: its undo, which its callers do not wait for very long. Does not
decide what may begin (`lifecycle`, `reconciler`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol

import structlog

from adapter.errors import UNEXPECTED, AdapterError, Draining
from adapter.lifecycle.freeing import Freeing
from adapter.lifecycle.loading import Loading
from adapter.lifecycle.operation import Model, Operation
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.states import State
from adapter.model import ModelSpec
from adapter.ports import Journal
from adapter.serving import LoadedModel
from adapter.telemetry.metrics import RESTORES

UNDO_PATIENCE_SECONDS = 2.0
"""
ModelMesh is told of a failed load after its undo, but no later than this: an undo may wait for Triton. The caller of a front
waits for all of it, within the load's budget: then the memory is there for the next load.
"""

log = structlog.stdlib.get_logger(__name__)


class Listener(Protocol):
    """Is told, synchronously, how operations go."""

    def failed(self, operation: Operation) -> None:
        """A load or restore begins its undo."""

    def ended(self, operation: Operation) -> None:
        """The id of an operation is free again."""


class Work:
    """Begins loads, unloads and restores, and ends them."""

    def __init__(self, *, registry: Registry, journal: Journal, loading: Loading, freeing: Freeing) -> None:
        self._registry = registry
        self._journal = journal
        self._loading = loading
        self._freeing = freeing
        self._listener: Listener
        self._on_loaded: Callable[[], None]
        self._is_closed = False

    def tell(self, listener: Listener, on_loaded: Callable[[], None]) -> None:
        """Before the first operation. `on_loaded` is called when a load of ModelMesh's has succeeded."""
        self._listener, self._on_loaded = listener, on_loaded

    def close(self) -> None:
        """What is cancelled from now on ends with the process, and is no defect."""
        self._is_closed = True

    def load(self, spec: ModelSpec) -> Operation:
        """Begin to load; the id must have no operation."""
        operation = self._registry.begin("load", spec.model_id, spec)
        operation.start(self._bring(operation, partial(self._loading.load, operation, spec)), self._ended)
        return operation

    def restore(self, model: Model) -> Operation:
        """Begin to load a LOST model again; it must have no operation."""
        operation = self._registry.begin("restore", model.model_id)
        operation.start(self._bring(operation, partial(self._loading.restore, operation)), self._ended)
        return operation

    def unload(self, model_id: str, deadline: float | None = None) -> Operation:
        """Begin to unload; the id must have no operation. Without the deadline of a call it is done in the background."""
        operation = self._registry.begin("unload", model_id, deadline=self._freeing.deadline() if deadline is None else deadline)
        operation.is_background = deadline is None
        operation.start(self._unload(operation), self._ended)
        return operation

    async def _bring(self, operation: Operation, steps: Callable[[], Awaitable[LoadedModel | None]]) -> None:
        try:
            loaded = await steps()
        except BaseException as error:  # noqa: BLE001 - every kind of end is told to the callers, and undone
            failure = self._failure(operation, error)
            operation.begin_undo(failure)
            self._listener.failed(operation)
            if operation.stopped_by is not None or operation.model.named is None:
                asyncio.get_running_loop().call_later(UNDO_PATIENCE_SECONDS, operation.fail, failure)
            await self._undo(operation)
            await operation.noted(self._journal)
            operation.fail(failure)
        else:
            if operation.kind == "load" and operation.model.named is None:
                self._on_loaded()
            operation.succeed(loaded)
        _count(operation)

    async def _undo(self, operation: Operation) -> None:
        model = operation.model
        try:
            await self._freeing.undo(operation)
        except Exception as error:  # noqa: BLE001 - the outcome is told already; the model is FAILED and says so
            log.warning("undo.failed", model_id=model.model_id, state=model.state.value, cause=str(error))

    async def _unload(self, operation: Operation) -> None:
        try:
            await self._freeing.take_down(operation, "unload")
        except BaseException as error:  # noqa: BLE001 - every kind of end is told to the callers
            operation.fail(self._failure(operation, error))
        else:
            await operation.noted(self._journal)
            operation.succeed(None)

    def _ended(self, operation: Operation) -> None:
        if not operation.result.done():  # stopped before its first step
            operation.fail(self._failure(operation, asyncio.CancelledError()))
        self._registry.end(operation)
        self._listener.ended(operation)

    def _failure(self, operation: Operation, error: BaseException) -> AdapterError:
        """What the callers are told: why it was stopped, or what went wrong, or that it is a defect of ours."""
        told: AdapterError
        if isinstance(error, asyncio.CancelledError) and operation.stopped_by is not None:
            told = operation.stopped_by
        elif isinstance(error, asyncio.CancelledError) and self._is_closed:
            told = Draining("the adapter is shutting down")
        elif isinstance(error, AdapterError):
            told = error
        else:
            log.error("operation.crashed", model_id=operation.model.model_id, operation=operation.kind, exc_info=error)
            told = AdapterError(UNEXPECTED)
            told.__cause__ = error
        return told.located(operation.model.model_id, operation.slow_phases())


def _count(operation: Operation) -> None:
    """What came of a model that Triton had lost, unless it is LOST still."""
    if not operation.is_again or operation.model.state is State.LOST:
        return
    outcome = "refused"
    if operation.has_loaded:
        outcome = "restored"
    elif operation.has_crashed:
        outcome = "crashed"
    elif operation.stopped_by is not None:
        outcome = "ended"
    RESTORES.labels(outcome).inc()
    if outcome in ("crashed", "refused"):
        log.warning("restore.failed", model_id=operation.model.model_id, outcome=outcome, cause=str(operation.outcome))
