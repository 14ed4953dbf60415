"""
Giving back what a model holds: Triton's memory first, then its files; after an unload, and to undo a load.

What there is to give back is read from the model's state, so every step here may be cancelled. Owns the one bound of an unload:
Triton has none of its own.
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from adapter.errors import UnloadUnfinished
from adapter.lifecycle.operation import Operation, Phase
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.states import State
from adapter.ports import Ports
from adapter.telemetry.metrics import UNLOADS_UNFINISHED

log = structlog.stdlib.get_logger(__name__)


class Freeing:
    """Brings models to ABSENT, or to FAILED when that does not end in time."""

    def __init__(self, *, registry: Registry, ports: Ports, bound_seconds: float) -> None:
        self._registry = registry
        self._store = ports.store
        self._repository = ports.repository
        self._server = ports.server
        self._journal = ports.journal
        self._bound_seconds = bound_seconds

    def deadline(self) -> float:
        """When what begins now must have freed its model, by the clock of the loop."""
        return asyncio.get_running_loop().time() + self._bound_seconds

    def unfinished(self, obstacle: str) -> UnloadUnfinished:
        """The error of an unload whose deadline has come."""
        return UnloadUnfinished(f"{obstacle}; the model was not freed within {self._bound_seconds:g} s")

    async def take_down(self, operation: Operation, phase: Phase) -> None:
        """
        From LOADED, FAILED or ABSENT (unknown: Triton is always asked) to ABSENT: memory free, files gone.

        Raises:
            AdapterError: it did not work, or not in time; the model is FAILED.
        """
        with operation.step(phase, partial(self._server.obstacle, operation.model.model_id)):
            self._registry.move(operation.model, State.UNLOADING)
            await self._give_back(operation)

    async def undo(self, operation: Operation) -> None:
        """
        Give back whatever a load or restore that has failed may hold. Raises as `take_down`.

        A model that is LOST is left so where the operation was stopped, and where a call has failed before it sent anything.
        """
        model = operation.model
        if model.state in (State.LOADING, State.FAILED) or _is_to_go(operation):
            await self.take_down(operation, "undo")
        elif model.state is State.PULLING:
            with operation.step("undo"):
                await self._give_back(operation)

    async def _give_back(self, operation: Operation) -> None:
        """
        Free the memory (not of a model that is PULLING: Triton was never asked), remove the files, forget the model.

        The model is ABSENT before its artifact is given up: a cancel there finds nothing to undo.
        """
        model = operation.model
        try:
            await operation.noted(self._journal)
            if model.state is State.UNLOADING:
                await self._unload(model.model_id, min(operation.deadline, self.deadline()))
            with operation.waits.on("the volume to give up the model's files"):
                await self._repository.remove(model.model_id)
        except BaseException:
            self._registry.move(model, State.FAILED)
            raise
        artifact = model.artifact
        self._registry.move(model, State.ABSENT)
        if artifact is not None:
            await self._store.release(artifact)

    async def _unload(self, model_id: str, deadline: float) -> None:
        bound = asyncio.timeout_at(deadline)
        try:
            async with bound:
                await self._server.unload(model_id)
        except TimeoutError:
            if not bound.expired():
                raise
            UNLOADS_UNFINISHED.inc()
            obstacle = self._server.obstacle(model_id)
            log.warning("unload.expired", model_id=model_id, cause=obstacle, bound_seconds=self._bound_seconds)
            raise self.unfinished(obstacle) from None


def _is_to_go(operation: Operation) -> bool:
    """A load that was told to no caller; a restore that has failed before anything was sent. One that was stopped may come again."""
    if operation.kind == "load":
        return operation.model.state is State.LOADED and operation.has_loaded
    return operation.model.state is State.LOST and operation.stopped_by is None
