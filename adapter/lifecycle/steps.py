"""
The steps of a load, an unload and an undo, over the ports.

Owns the order of things and what each state has to give back; decides nothing about who may start
(that is `registry`) and nothing about layouts, stores or Triton. Every function may be cancelled at
any await; what is left to undo can then be read from the model's state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import structlog

from adapter.errors import AdapterError, ServerUnavailable, SourceChanged, SourceNotFound
from adapter.lifecycle.registry import Model, Operation, Registry
from adapter.lifecycle.sizing import Sizing
from adapter.lifecycle.states import Event, State
from adapter.model import Layout, LoadedModel, ModelSpec
from adapter.ports import ModelRepository, ModelServer, ModelStore, StoredModel

PULL_ATTEMPTS = 3
PAUSE_BEFORE_NEW_LISTING_SECONDS = 0.5

log = structlog.stdlib.get_logger(__name__)


class Steps:
    """What is done for a model, in order."""

    def __init__(
        self,
        *,
        registry: Registry,
        store: ModelStore,
        repository: ModelRepository,
        server: ModelServer,
        sizing: Sizing,
        max_concurrency: int,
    ) -> None:
        self._registry = registry
        self._store = store
        self._repository = repository
        self._server = server
        self._sizing = sizing
        self._max_concurrency = max_concurrency

    async def load(self, operation: Operation, spec: ModelSpec) -> LoadedModel:
        """Bring the model to LOADED with the content of `spec`. On any exception the caller runs `undo`."""
        model, phases = operation.model, operation.phases
        if model.state is State.LOADED:
            with phases.phase("check"):
                if await self._is_current(model, spec):
                    return self._answer(model)
        if model.state is not State.ABSENT or not self._registry.is_complete:
            with phases.phase("undo"):
                await self.take_down(model)
        self._registry.fire(model, Event.LOAD)
        layout = await self._pull(operation, spec)
        async with AsyncExitStack() as stack:
            with phases.phase("queue"):
                await stack.enter_async_context(self._server.loading_slot())
            self._registry.fire(model, Event.SEND)
            with phases.phase("triton"):
                await self._server.load(model.model_id)
        with phases.phase("measure"):
            reported = await self._server.reported_bytes(model.model_id)
            if not reported and not await self._server.is_ready(model.model_id):
                raise ServerUnavailable("Triton has lost the model just after it had loaded it: it has restarted, or the backend has died")
        model.spec = spec
        model.size_bytes = self._sizing.measured(spec, layout.size_bytes, reported)
        self._registry.fire(model, Event.READY)
        return self._answer(model)

    async def take_down(self, model: Model) -> None:
        """From LOADED, FAILED or ABSENT (unknown: Triton is always asked) to ABSENT: memory free, files gone."""
        self._registry.fire(model, Event.UNLOAD)
        await self._free(model)

    async def undo(self, model: Model) -> None:
        """
        Give back whatever the model's state says it may hold.

        Raises:
            AdapterError: the undo did not finish; the model is FAILED.
        """
        if model.state is State.PULLING:
            await self._give_back(model, Event.DROP, self._repository.remove)
        elif model.state is State.LOADING:
            self._registry.fire(model, Event.UNDO)
            await self._free(model)
        elif model.state is State.FAILED:
            await self.take_down(model)

    async def _pull(self, operation: Operation, spec: ModelSpec) -> Layout:
        for attempt in range(1, PULL_ATTEMPTS + 1):
            try:
                return await self._pull_once(operation, spec)
            except SourceChanged as error:
                if attempt == PULL_ATTEMPTS:
                    raise
                log.info("pull.restarted", model_id=spec.model_id, cause=error.text)
            with operation.phases.phase("list"):
                await asyncio.sleep(PAUSE_BEFORE_NEW_LISTING_SECONDS)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _pull_once(self, operation: Operation, spec: ModelSpec) -> Layout:
        model, phases = operation.model, operation.phases
        with phases.phase("list"):
            stored = await self._store.open(spec)
            layout = await self._plan(spec, stored)
        self._sizing.admit(spec, layout.size_bytes)
        model.listing = stored.listing
        with phases.phase("pull"):
            model.artifact = await stored.fetch(layout.files)
        with phases.phase("place"):
            await self._repository.place(model.model_id, layout, model.artifact)
        return layout

    async def _plan(self, spec: ModelSpec, stored: StoredModel) -> Layout:
        listing = stored.listing
        contents = {file: await stored.read(file) for file in self._repository.wanted(listing)}
        return await self._repository.plan(spec, listing, contents)

    async def _is_current(self, model: Model, spec: ModelSpec) -> bool:
        """Equal: same type, path and key, one listing shows the same content, and Triton serves it."""
        if model.spec != spec or not await self._server.is_ready(model.model_id):
            return False
        try:
            stored = await self._store.open(spec)
        except SourceNotFound:
            return False
        except AdapterError as error:  # storage or its configuration cannot be asked: that is no reason to stop serving
            log.warning("listing.skipped", model_id=spec.model_id, cause=error.text)
            return True
        return stored.listing == model.listing

    async def _free(self, model: Model) -> None:
        await self._give_back(model, Event.GONE, self._server.unload, self._repository.remove)

    async def _give_back(self, model: Model, done: Event, *steps: Callable[[str], Awaitable[None]]) -> None:
        """
        Take the steps, then forget the model; one that does not end leaves it FAILED.

        The model is ABSENT before its files are given back: a cancel there finds nothing to undo.
        """
        try:
            for step in steps:
                await step(model.model_id)
        except BaseException:
            self._registry.fire(model, Event.STUCK)
            raise
        artifact = model.artifact
        self._registry.fire(model, done)
        if artifact is not None:
            await self._store.release(artifact)

    def _answer(self, model: Model) -> LoadedModel:
        return LoadedModel(size_bytes=model.size_bytes, max_concurrency=self._max_concurrency)


def failure_of(operation: Operation, error: BaseException) -> AdapterError:
    """What the callers are told: why it was stopped, or what went wrong, or that it is a defect of ours."""
    told: AdapterError
    if isinstance(error, asyncio.CancelledError) and operation.stopped_by is not None:
        told = operation.stopped_by
    elif isinstance(error, AdapterError):
        told = error
    else:
        log.error("operation.crashed", model_id=operation.model.model_id, operation=operation.kind, exc_info=error)
        told = AdapterError("internal error of the adapter; its log has the details")
        told.__cause__ = error
    return told.located(operation.model.model_id, str(operation.phases))
