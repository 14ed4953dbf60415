"""
The steps of a load, over the ports: check, list, pull, place, have Triton load, measure.

Owns their order; who may begin is decided by `lifecycle`, how a model looks by `planning`. Every step
may be cancelled; what is to be undone can then be read from the model's state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

import structlog

from adapter.errors import AdapterError, ModelRefused, ServerUnavailable, SourceChanged, SourceNotFound
from adapter.lifecycle.freeing import Freeing
from adapter.lifecycle.operation import Model, Operation
from adapter.lifecycle.planning import Planning
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.sizing import Sizing
from adapter.lifecycle.states import Event, State
from adapter.model import Layout, LoadedModel, ModelSpec
from adapter.ports import Neighbours
from adapter.settings import CapacitySettings

PULL_ATTEMPTS = 3
PAUSE_BEFORE_NEW_LISTING_SECONDS = 0.5
LOOK_SECONDS = 5.0
"""
Longest look into storage for a model that serves already, and never more than a third of the budget.
A store that hangs must leave time for the answer; most listings take well below a second.
"""

log = structlog.stdlib.get_logger(__name__)


class Loading:
    """Brings a model to LOADED."""

    def __init__(
        self,
        *,
        registry: Registry,
        neighbours: Neighbours,
        capacity: CapacitySettings,
        sizing: Sizing,
        planning: Planning,
        freeing: Freeing,
    ) -> None:
        self._registry = registry
        self._store = neighbours.store
        self._repository = neighbours.repository
        self._server = neighbours.server
        self._sizing = sizing
        self._planning = planning
        self._freeing = freeing
        self._max_concurrency = capacity.max_concurrency
        self._look_seconds = min(LOOK_SECONDS, capacity.budget_seconds / 3)

    async def load(self, operation: Operation, spec: ModelSpec) -> LoadedModel:
        """Bring the model to LOADED with the content of `spec`. On any exception the caller runs `Freeing.undo`."""
        model = operation.model
        if model.state is State.LOADED:
            with operation.step("check", self._triton("Triton has not said whether it serves the model")):
                if await self._is_current(operation, spec):
                    return self._answer(model)
        if model.state is not State.ABSENT or not self._registry.is_complete:
            await self._freeing.take_down(operation, "undo")
        self._registry.fire(model, Event.LOAD)
        layout = await self._pull(operation, spec)
        for warning in layout.warnings:
            log.warning("model.warning", model_id=model.model_id, warning=warning)
        try:
            await self._serve(operation)
        except ModelRefused as refused:
            if not layout.hint:
                raise
            raise ModelRefused(f"{refused.text}; {layout.hint}") from refused
        with operation.step("measure", self._triton("Triton has not told the size of the model")):
            reported = await self._server.reported_bytes(model.model_id)
            if not reported and not await self._server.is_ready(model.model_id):
                raise ServerUnavailable("Triton has lost the model just after it had loaded it: it has restarted, or the backend has died")
        model.spec = spec
        model.size_bytes = self._sizing.measured(spec, layout.size_bytes, reported)
        self._registry.fire(model, Event.READY)
        return self._answer(model)

    async def _pull(self, operation: Operation, spec: ModelSpec) -> Layout:
        for _ in range(PULL_ATTEMPTS - 1):
            try:
                return await self._pull_once(operation, spec)
            except SourceChanged as error:
                log.info("pull.restarted", model_id=spec.model_id, cause=error.text)
            with operation.step("list"):
                await asyncio.sleep(PAUSE_BEFORE_NEW_LISTING_SECONDS)
        return await self._pull_once(operation, spec)

    async def _pull_once(self, operation: Operation, spec: ModelSpec) -> Layout:
        model = operation.model
        with operation.step("list"):
            stored = await self._store.open(spec, operation.waits)
            layout = await self._planning.layout(spec, stored)
        self._sizing.admit(spec, layout.size_bytes)
        model.listing = stored.listing
        with operation.step("pull"):
            model.artifact = await stored.fetch(layout.files)
        with operation.step("place"), operation.waits.on("the model's files to be read on the volume"):
            layout = await self._planning.finished(layout, model.artifact)
        with operation.step("place"), operation.waits.on("the volume to take the model's files"):
            await self._repository.place(model.model_id, layout, model.artifact)
        return layout

    async def _serve(self, operation: Operation) -> None:
        """Have Triton load the placed model. It is LOADING from the moment of sending: until then there are only files to undo."""
        model = operation.model
        with ExitStack() as step:
            step.enter_context(operation.step("queue", lambda: self._server.problem or self._server.queue()))

            def on_sent() -> None:
                step.close()
                self._registry.fire(model, Event.SEND)
                step.enter_context(operation.step("triton", lambda: self._server.problem or self._server.obstacle(model.model_id)))

            await self._server.load(model.model_id, on_sent)

    async def _is_current(self, operation: Operation, spec: ModelSpec) -> bool:
        """
        Equal: same type, path and key, one listing shows the same content, and Triton serves it. Without versions no listing does.

        Storage or its configuration that cannot be asked, or does not answer, is no reason to stop serving.
        """
        model = operation.model
        if model.spec != spec or not await self._server.is_ready(model.model_id):
            return False
        try:
            async with asyncio.timeout(self._look_seconds):
                stored = await self._store.open(spec, operation.waits)
        except SourceNotFound:
            return False
        except (AdapterError, TimeoutError) as error:
            cause = str(error) or f"storage has not listed the model within {self._look_seconds:g} s"
            log.warning("listing.skipped", model_id=spec.model_id, cause=cause)
            return True
        return stored.listing.is_versioned and await self._planning.is_same(stored.listing, model.listing)

    def _triton(self, words: str) -> Callable[[], str]:
        """What a question to Triton waits for."""
        return lambda: self._server.problem or words

    def _answer(self, model: Model) -> LoadedModel:
        return LoadedModel(size_bytes=model.size_bytes, max_concurrency=self._max_concurrency)
