"""
What ModelMesh can ask for, over one registry: who joins, who waits, who overtakes whom.

A load belongs to its model id, not to a call: it goes on while at least one caller waits for it, and
is undone when the last one has gone, or when an unload or a purge comes. Each caller has a budget of
its own. An unload overtakes a load of the same id, waits for its undo, and is never cancelled.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Literal, cast

import structlog

from adapter.errors import Abandoned, AdapterError, BudgetExceeded, Draining, ModelNotLoaded, Superseded, UnloadUnfinished
from adapter.lifecycle.registry import Model, Operation, Registry
from adapter.lifecycle.sizing import Sizing
from adapter.lifecycle.states import State
from adapter.lifecycle.steps import Steps, failure_of
from adapter.lifecycle.view import View
from adapter.model import Listing, LoadedModel, ModelSpec, RuntimeState
from adapter.ports import ModelRepository, ModelServer, ModelStore
from adapter.settings import CapacitySettings
from adapter.telemetry.logs import note

SURVEY_SECONDS = 0.3
"""Longest look into storage for a prediction; ModelMesh waits 500 ms in all."""
UNDO_PATIENCE_SECONDS = 2.0
"""A failed load is answered after its undo, but no later than this: an undo may wait for Triton."""
IDLE_SECONDS = 1.0
"""A drain ends when nothing has run for this long: late unloads are still answered."""

log = structlog.stdlib.get_logger(__name__)


class RuntimeLifecycle:
    """The lifecycle of all models; implements `adapter.ports.Lifecycle`."""

    def __init__(
        self,
        *,
        store: ModelStore,
        repository: ModelRepository,
        server: ModelServer,
        capacity: CapacitySettings,
        unload_timeout_seconds: float,
    ) -> None:
        self.registry = Registry()
        self._sizing = Sizing(capacity)
        self._store = store
        self._repository = repository
        self._server = server
        self._unload_seconds = unload_timeout_seconds
        self._budget_seconds = capacity.budget_seconds
        self._announced_seconds = capacity.load_timeout_ms / 1000
        self._steps = Steps(
            registry=self.registry,
            store=store,
            repository=repository,
            server=server,
            sizing=self._sizing,
            max_concurrency=capacity.max_concurrency,
        )
        self._view = View(
            registry=self.registry,
            store=store,
            repository=repository,
            server=server,
            sizing=self._sizing,
            version=capacity.runtime_version,
        )
        self._is_draining = False

    def start(self) -> None:
        """Begin to rebuild the view from Triton's index, in the background."""
        self._view.adopt(self._begin_take_down)

    def readiness(self) -> str | None:
        """Why ModelMesh could not be served now, or None."""
        return "the adapter is shutting down" if self._is_draining else self._server.problem or self._view.problem

    async def load(self, spec: ModelSpec) -> LoadedModel:
        """
        Load, join an equal load, or confirm an equal loaded model. Raises AdapterError.

        Cancelling this call leaves the load to its other callers; the last one to go undoes it.
        """
        operation: Operation | None = None
        try:
            async with asyncio.timeout(self._budget_seconds):
                operation = await self._claim_load(spec)
                return await self._wait_for(operation)
        except TimeoutError:
            raise self._over_budget(spec, operation) from None
        finally:
            if operation is not None:
                note(phases=operation.phases.seconds())

    async def unload(self, model_id: str) -> None:
        """Free the model, whatever is under way for it. Raises UnloadUnfinished, WrongServer."""
        while True:
            await self._until_view_is_true(model_id)
            running = self.registry.operation_on(model_id)
            if running is None:
                running = self._begin("unload", model_id, None)
            if running.kind == "unload":
                await asyncio.shield(running.result)
                return
            running.stop(Superseded("an unload of the model overtook its load"))
            await running.ended.wait()

    async def _until_view_is_true(self, model_id: str) -> None:
        try:
            async with asyncio.timeout(self._unload_seconds):
                await self._view.until_true()
        except TimeoutError:
            raise UnloadUnfinished(f"not begun within {self._unload_seconds:g} s: {self.readiness()}").located(model_id, None) from None

    async def predict(self, spec: ModelSpec) -> int:
        """Best size that can be told now, in bytes; never raises for trouble with storage or layout."""
        known = self._sizing.known(spec)
        if known is not None:
            return known
        try:
            survey = await self._store.survey(spec, SURVEY_SECONDS)
            if survey.listing is None:
                return self._sizing.predict_at_least(survey.seen_bytes)
            return self._sizing.predict_listed(await self._served_bytes(spec, survey.listing))
        except AdapterError as error:
            log.debug("prediction.defaulted", model_id=spec.model_id, cause=error.text)
            return self.default_prediction()

    def default_prediction(self) -> int:
        """Size of a model of which nothing is known, in bytes."""
        return self._sizing.default_bytes

    async def size_of(self, model_id: str) -> int:
        """Size of a loaded model in bytes, never 0. Raises ModelNotLoaded."""
        model = self.registry.find(model_id)
        if model is None or model.state is not State.LOADED:
            raise ModelNotLoaded("the model is not loaded").located(model_id, None)
        return model.size_bytes

    async def status(self) -> RuntimeState:
        """READY when everything is purged; a call means that ModelMesh has restarted with an empty view."""
        state = await self._view.status()
        return replace(state, is_ready=False, problem=self.readiness()) if self._is_draining else state

    async def drain(self, grace_seconds: float) -> bool:
        """
        Take no new loads; let what runs finish, then undo it. Unloads are answered all the time.

        Returns:
            Whether everything had settled within the grace period.
        """
        self._is_draining = True
        loop = asyncio.get_running_loop()
        end = loop.time() + grace_seconds
        if await self._is_settled(loop.time() + grace_seconds * 0.6):
            return True
        for operation in self.registry.operations():
            operation.stop(Draining("the adapter is shutting down"))
        return await self._is_settled(end)

    # ---- loads and unloads

    async def _claim_load(self, spec: ModelSpec) -> Operation:
        while True:
            await self._view.until_true()
            if self._is_draining:
                raise Draining("the adapter is shutting down and takes no new loads").located(spec.model_id, None)
            running = self.registry.operation_on(spec.model_id)
            if running is None:
                return self._begin("load", spec.model_id, spec)
            if running.can_be_joined_by(spec):
                return running
            await running.ended.wait()

    async def _wait_for(self, operation: Operation) -> LoadedModel:
        operation.callers += 1
        try:
            return cast("LoadedModel", await asyncio.shield(operation.result))
        finally:
            operation.callers -= 1
            if not operation.callers:
                operation.stop(Abandoned("its last caller has gone"))

    def _begin(self, kind: Literal["load", "unload"], model_id: str, spec: ModelSpec | None) -> Operation:
        operation = self.registry.begin(kind, model_id, spec)
        work = self._run_unload(operation) if spec is None else self._run_load(operation, spec)
        operation.start(work, self._ended)
        return operation

    def _begin_take_down(self, model: Model) -> None:
        self._begin("unload", model.model_id, None)

    async def _run_load(self, operation: Operation, spec: ModelSpec) -> None:
        try:
            loaded = await self._steps.load(operation, spec)
        except BaseException as error:  # noqa: BLE001 - every kind of end is told to the callers, and undone
            operation.is_ending = True
            failure = failure_of(operation, error)
            undo = asyncio.create_task(self._undo(operation), name=f"undo {spec.model_id}")
            await asyncio.wait({undo}, timeout=UNDO_PATIENCE_SECONDS)
            operation.fail(failure)
            await undo
        else:
            self._view.met_modelmesh()
            operation.succeed(loaded)

    async def _undo(self, operation: Operation) -> None:
        model = operation.model
        try:
            with operation.phases.phase("undo"):
                await self._steps.undo(model)
        except Exception as error:  # noqa: BLE001 - the outcome is told already; the model is FAILED and says so
            log.warning("undo.unfinished", model_id=model.model_id, state=model.state.value, cause=str(error))

    async def _run_unload(self, operation: Operation) -> None:
        try:
            with operation.phases.phase("unload"):
                await self._steps.take_down(operation.model)
        except BaseException as error:  # noqa: BLE001 - every kind of end is told to the callers
            operation.fail(failure_of(operation, error))
        else:
            operation.succeed(None)

    def _ended(self, operation: Operation) -> None:
        if not operation.result.done():  # stopped before its first step
            operation.fail(failure_of(operation, asyncio.CancelledError()))
        self.registry.end(operation)

    def _over_budget(self, spec: ModelSpec, operation: Operation | None) -> AdapterError:
        slow = str(operation.phases) if operation else f"queue {self._budget_seconds:.1f} s"
        away = f"; {self._server.problem}" if self._server.problem else ""
        return BudgetExceeded(
            f"not loaded within {self._budget_seconds:.1f} s (the announced timeout is {self._announced_seconds:g} s){away}"
        ).located(spec.model_id, slow)

    async def _served_bytes(self, spec: ModelSpec, listing: Listing) -> int:
        """Bytes of the files that will be served; of all files when that depends on a file to be read."""
        if self._repository.wanted(listing):
            return listing.size_bytes
        return (await self._repository.plan(spec, listing, {})).size_bytes

    async def _is_settled(self, deadline: float) -> bool:
        loop = asyncio.get_running_loop()
        idle_since = loop.time()
        while (now := loop.time()) < deadline:
            if self.registry.operations():
                idle_since = now
            elif now - idle_since >= IDLE_SECONDS:
                return True
            await asyncio.sleep(0.05)
        return not self.registry.operations()
