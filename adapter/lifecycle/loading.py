"""
The steps of a load, over the ports: check, list, pull, place, and send; of a restore: send.

Owns their order; who may begin is decided by `lifecycle`, how a model looks by `planning`. Every step
may be cancelled; what is to be undone can then be read from the model's state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

import structlog

from adapter.errors import ModelRefused, SourceChanged
from adapter.layout import rules
from adapter.lifecycle.booking import Booking
from adapter.lifecycle.checking import Checking, Standing
from adapter.lifecycle.crashes import CrashCounts
from adapter.lifecycle.freeing import Freeing
from adapter.lifecycle.operation import JOURNAL, Model, Operation
from adapter.lifecycle.planning import Planning
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.sending import Sending
from adapter.lifecycle.states import Event, State
from adapter.model import Content, Layout, Listing, LoadedModel, ModelSpec
from adapter.ports import Neighbours
from adapter.settings import CapacitySettings
from adapter.telemetry.metrics import RESTORES

PULL_ATTEMPTS = 3
PAUSE_BEFORE_NEW_LISTING_SECONDS = 0.5

log = structlog.stdlib.get_logger(__name__)


class Loading:
    """Brings a model to LOADED."""

    def __init__(
        self,
        *,
        registry: Registry,
        neighbours: Neighbours,
        capacity: CapacitySettings,
        booking: Booking,
        planning: Planning,
        freeing: Freeing,
        crashes: CrashCounts,
    ) -> None:
        self._registry = registry
        self._store = neighbours.store
        self._repository = neighbours.repository
        self._server = neighbours.server
        self._journal = neighbours.journal
        self._booking = booking
        self._planning = planning
        self._freeing = freeing
        self._crashes = crashes
        self._checking = Checking(neighbours=neighbours, capacity=capacity, planning=planning)
        self._sending = Sending(registry=registry, neighbours=neighbours, crashes=crashes)
        self._max_concurrency = capacity.max_concurrency

    async def load(self, operation: Operation, spec: ModelSpec) -> LoadedModel:
        """Bring the model to LOADED with the content of `spec`. On any exception the caller runs `Freeing.undo`."""
        model = operation.model
        standing = Standing.OTHER
        if model.state in (State.LOADED, State.LOST):
            with operation.step("check", self._triton("Triton has not said whether it serves the model")):
                standing = await self._checking.standing(operation, spec)
        if standing is Standing.PLACED and await self._is_sent_again(operation):
            standing = Standing.SERVES
        if standing is Standing.SERVES:
            return await self._confirm(operation, spec)
        if model.state is State.LOST:
            RESTORES.labels("ended").inc()
        await self._repository.claim(model.model_id)
        if model.state is not State.ABSENT or not self._registry.is_complete:
            await self._freeing.take_down(operation, "undo")
        self._registry.fire(model, Event.LOAD)
        layout = await self._pull(operation, spec)
        for warning in layout.warnings if spec.named is None else ():  # they tell what ModelMesh does not forward
            log.warning("model.warning", model_id=model.model_id, warning=warning)
        try:
            await self._sending.send(operation, partial(self._booking.measured, model, spec, layout.size_bytes))
        except ModelRefused as refused:
            if not layout.hint:
                raise
            raise ModelRefused(f"{refused.text}; {layout.hint}") from refused
        return self._answer(model)

    async def restore(self, operation: Operation) -> None:
        """From LOST to LOADED, with the files that are placed. On any exception the caller runs `Freeing.undo`."""
        model = operation.model
        if model.content is not None:
            self._crashes.check(model.content)
        await self._sending.send(operation, partial(self._booking.restored, model), yields=operation.kind == "restore")

    async def _is_sent_again(self, operation: Operation) -> bool:
        """Restore the model for its caller, who has compared the content. False: Triton refuses it now; it is undone."""
        model = operation.model
        if model.state is State.LOADED:
            self._registry.fire(model, Event.LOSE)
        operation.is_again = True
        try:
            await self.restore(operation)
        except ModelRefused as refused:
            log.warning("restore.failed", model_id=model.model_id, outcome="refused", cause=refused.text)
            RESTORES.labels("refused").inc()
            operation.is_again = False
            await self._freeing.undo(operation)
            return False
        return True

    async def _confirm(self, operation: Operation, spec: ModelSpec) -> LoadedModel:
        model = operation.model
        model.spec, model.confirmed = spec, self._journal.now()
        self._registry.note(model)
        with operation.waits.on(JOURNAL):
            await self._journal.written()
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
            self._server.expect_load()
            stored = await self._store.open(spec, operation.waits, rules.wanted)
            layout = await self._planning.layout(spec, stored)
        content = await self._content(spec, stored.listing)
        self._crashes.check(content)
        self._booking.admit(model, spec, layout.size_bytes, content)
        model.spec, model.content = spec, content
        with operation.step("pull"):
            model.artifact = await stored.fetch(layout.files)
        with operation.step("place"):
            layout = await self._planning.finished(layout, stored, model.artifact)
        with operation.step("place"), operation.waits.on("the volume to take the model's files"):
            model.placed = await self._repository.place(model.model_id, layout, model.artifact)
        return layout

    async def _content(self, spec: ModelSpec, listing: Listing) -> Content:
        return await self._planning.content(spec, listing, self._journal.digests)

    def _triton(self, words: str) -> Callable[[], str]:
        """What a question to Triton waits for."""
        return lambda: self._server.problem or words

    def _answer(self, model: Model) -> LoadedModel:
        return LoadedModel(size_bytes=model.size_bytes, max_concurrency=self._max_concurrency)
