"""
Giving back what a model holds: Triton's memory first, then its files; after an unload, and to undo a load.

What there is to give back is read from the model's state, so every step here may be cancelled. Owns
the one bound of an unload: Triton has none of its own.
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from adapter.errors import UnloadUnfinished
from adapter.lifecycle.operation import JOURNAL, Operation
from adapter.lifecycle.phases import Phase
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.states import Event, State
from adapter.ports import Neighbours
from adapter.telemetry.metrics import UNLOADS_UNFINISHED

log = structlog.stdlib.get_logger(__name__)


class Freeing:
    """Brings models to ABSENT, or to FAILED when that does not end in time."""

    def __init__(self, *, registry: Registry, neighbours: Neighbours, bound_seconds: float) -> None:
        self._registry = registry
        self._store = neighbours.store
        self._repository = neighbours.repository
        self._server = neighbours.server
        self._journal = neighbours.journal
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
            self._registry.fire(operation.model, Event.UNLOAD)
            await self._give_back(operation, Event.GONE)

    async def undo(self, operation: Operation) -> None:
        """
        Give back whatever a load or restore that has failed may hold. Raises as `take_down`.

        A model that is LOST is left so where the operation was stopped, and where a call has failed before it sent anything.
        """
        model = operation.model
        with operation.step("undo", partial(self._server.obstacle, model.model_id)):
            if model.state is State.PULLING:
                await self._give_back(operation, Event.DROP)
            elif model.state in (State.LOADING, State.FAILED) or _is_to_go(operation):
                self._registry.fire(model, Event.UNDO if model.state is State.LOADING else Event.UNLOAD)
                await self._give_back(operation, Event.GONE)

    async def _give_back(self, operation: Operation, done: Event) -> None:
        """
        Free the memory (not for DROP: Triton was never asked), remove the files, forget the model.

        The model is ABSENT before its artifact is given up: a cancel there finds nothing to undo.
        """
        model = operation.model
        try:
            with operation.waits.on(JOURNAL):
                await self._journal.written()
            if done is Event.GONE:
                await self._unload(model.model_id, min(operation.deadline, self.deadline()))
            with operation.waits.on("the volume to give up the model's files"):
                await self._repository.remove(model.model_id)
        except BaseException:
            self._registry.fire(model, Event.STUCK)
            raise
        artifact = model.artifact
        self._registry.fire(model, done)
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
    """A load that nobody was told of; a restore that has failed before anything was sent. One that was stopped may come again."""
    if operation.kind == "load":
        return operation.model.state is State.LOADED and operation.has_loaded
    return operation.model.state is State.LOST and operation.stopped_by is None
