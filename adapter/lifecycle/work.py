"""
Operations from their beginning to their end: each runs in a task of its own, and its callers are told.

Owns what happens to a load that fails or is stopped: its undo, which its callers do not wait for very
long. Decides nothing about who may begin (`lifecycle`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import structlog

from adapter.errors import UNEXPECTED, AdapterError
from adapter.lifecycle.freeing import Freeing
from adapter.lifecycle.loading import Loading
from adapter.lifecycle.operation import Operation
from adapter.lifecycle.registry import Registry
from adapter.model import ModelSpec

UNDO_PATIENCE_SECONDS = 2.0
"""A failed load is answered after its undo, but no later than this: an undo may wait for Triton."""

log = structlog.stdlib.get_logger(__name__)


class Work:
    """Begins loads and unloads, and ends them."""

    def __init__(self, *, registry: Registry, loading: Loading, freeing: Freeing, on_loaded: Callable[[], None]) -> None:
        self._registry = registry
        self._loading = loading
        self._freeing = freeing
        self._on_loaded = on_loaded

    def load(self, spec: ModelSpec) -> Operation:
        """Begin to load; the id must have no operation."""
        operation = self._registry.begin("load", spec.model_id, spec)
        operation.start(self._load(operation, spec), self._ended)
        return operation

    def unload(self, model_id: str, deadline: float) -> Operation:
        """Begin to unload; the id must have no operation."""
        operation = self._registry.begin("unload", model_id, deadline=deadline)
        operation.start(self._unload(operation), self._ended)
        return operation

    async def _load(self, operation: Operation, spec: ModelSpec) -> None:
        try:
            loaded = await self._loading.load(operation, spec)
        except BaseException as error:  # noqa: BLE001 - every kind of end is told to the callers, and undone
            failure = _failure(operation, error)
            operation.begin_undo(failure)
            overdue = asyncio.get_running_loop().call_later(UNDO_PATIENCE_SECONDS, operation.fail, failure)
            await self._undo(operation)
            overdue.cancel()
            operation.fail(failure)
        else:
            self._on_loaded()
            operation.succeed(loaded)

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
            operation.fail(_failure(operation, error))
        else:
            operation.succeed(None)

    def _ended(self, operation: Operation) -> None:
        if not operation.result.done():  # stopped before its first step
            operation.fail(_failure(operation, asyncio.CancelledError()))
        self._registry.end(operation)


def _failure(operation: Operation, error: BaseException) -> AdapterError:
    """What the callers are told: why it was stopped, or what went wrong, or that it is a defect of ours."""
    told: AdapterError
    if isinstance(error, asyncio.CancelledError) and operation.stopped_by is not None:
        told = operation.stopped_by
    elif isinstance(error, AdapterError):
        told = error
    else:
        log.error("operation.crashed", model_id=operation.model.model_id, operation=operation.kind, exc_info=error)
        told = AdapterError(UNEXPECTED)
        told.__cause__ = error
    return told.located(operation.model.model_id, str(operation.phases))
