"""
Operations on models, each in a task of its own: a load or a restore brings a model up, an unload or an undo brings it down.

Every step may be cancelled; what is to be undone is read from the model's state. The model is LOADING from the moment in which
Triton is asked; until then there are only files to undo. A Triton that dies between that and the answer is counted against the
content. Does not decide what may begin (`lifecycle`, `reconciler`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any

import structlog

from adapter.errors import UNEXPECTED, AdapterError, Draining, ModelRefused, ServerDied, UnloadUnfinished
from adapter.inventory import is_untouched
from adapter.lifecycle.crashes import CrashCounts
from adapter.lifecycle.fetching import Fetching
from adapter.lifecycle.operation import Model, Operation, Phase
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.sizes import Sizes
from adapter.lifecycle.states import State
from adapter.model import ModelSpec
from adapter.ports import Ports
from adapter.serving import LoadedModel
from adapter.telemetry.metrics import RESTORES, UNLOADS_UNFINISHED

UNDO_PATIENCE_SECONDS = 2.0
"""
ModelMesh is told of a failed load after its undo, but no later than this: an undo may wait for Triton. The caller of a front
waits for all of it, within the load's budget: then the memory is there for the next load.
"""

log = structlog.stdlib.get_logger(__name__)


class Worker:
    """Begins operations and ends them."""

    on_ended: Callable[[Operation], None]
    """Called when the id of an operation is free again. Set before the first operation, as `on_loaded`."""
    on_loaded: Callable[[], None]
    """Called when a load of ModelMesh's has succeeded."""

    def __init__(
        self,
        *,
        registry: Registry,
        ports: Ports,
        fetching: Fetching,
        sizes: Sizes,
        crashes: CrashCounts,
        max_concurrency: int,
        unload_seconds: float,
    ) -> None:
        self._registry = registry
        self._store = ports.store
        self._repository = ports.repository
        self._server = ports.server
        self._journal = ports.journal
        self._fetching = fetching
        self._sizes = sizes
        self._crashes = crashes
        self._max_concurrency = max_concurrency
        self._unload_seconds = unload_seconds
        self._is_closed = False

    def close(self) -> None:
        """What is cancelled from now on ends with the process, and is no defect."""
        self._is_closed = True

    def load(self, spec: ModelSpec) -> Operation:
        """Begin to load; the id must have no operation."""
        operation = self._registry.begin("load", spec.model_id, spec)
        return self._started(operation, self._bring_up(operation, partial(self._load, operation, spec)))

    def restore(self, model: Model) -> Operation:
        """Begin to load a LOST model again; it must have no operation."""
        operation = self._registry.begin("restore", model.model_id)
        return self._started(operation, self._bring_up(operation, partial(self._restore, operation)))

    def unload(self, model_id: str, deadline: float | None = None) -> Operation:
        """Begin to unload; the id must have no operation. Without the deadline of a call it is done in the background."""
        operation = self._registry.begin("unload", model_id, deadline=self.unload_deadline() if deadline is None else deadline)
        operation.is_background = deadline is None
        return self._started(operation, self._bring_down(operation))

    def unload_deadline(self) -> float:
        """When an unload that begins now must have freed its model, by the clock of the loop: Triton has no bound of its own."""
        return asyncio.get_running_loop().time() + self._unload_seconds

    def unfinished(self, obstacle: str) -> UnloadUnfinished:
        """The error of an unload whose deadline has come."""
        return UnloadUnfinished(f"{obstacle}; the model was not freed within {self._unload_seconds:g} s")

    def _started(self, operation: Operation, work: Coroutine[Any, Any, None]) -> Operation:
        operation.start(work, self._ended)
        return operation

    def _ended(self, operation: Operation) -> None:
        if not operation.result.done():  # stopped before its first step
            operation.fail(self._failure(operation, asyncio.CancelledError()))
        outcome = operation.outcome_of_loss
        if outcome is not None:
            RESTORES.labels(outcome).inc()
        if outcome in ("crashed", "refused") and operation.outcome is not None:
            log.warning("restore.failed", model_id=operation.model.model_id, outcome=outcome, cause=str(operation.outcome))
        self._registry.end(operation)
        self.on_ended(operation)

    async def _bring_up(self, operation: Operation, steps: Callable[[], Awaitable[LoadedModel | None]]) -> None:
        try:
            loaded = await steps()
        except BaseException as error:  # noqa: BLE001 - every kind of end is told to the callers, and undone
            failure = self._failure(operation, error)
            operation.begin_undo(failure)
            if operation.stopped_by is not None or operation.model.named is None:
                asyncio.get_running_loop().call_later(UNDO_PATIENCE_SECONDS, operation.fail, failure)
            try:
                await self._undo(operation)
            except Exception as trouble:  # noqa: BLE001 - the outcome is known already; the model is FAILED and says so
                log.warning("undo.failed", model_id=operation.model.model_id, state=operation.model.state.value, cause=str(trouble))
            await operation.noted(self._journal)
            operation.fail(failure)
        else:
            if operation.kind == "load" and operation.model.named is None:
                self.on_loaded()
            operation.succeed(loaded)

    async def _bring_down(self, operation: Operation) -> None:
        try:
            await self._take_down(operation, "unload")
        except BaseException as error:  # noqa: BLE001 - every kind of end is told to the callers
            operation.fail(self._failure(operation, error))
        else:
            await operation.noted(self._journal)
            operation.succeed(None)

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

    # ---- up

    async def _load(self, operation: Operation, spec: ModelSpec) -> LoadedModel:
        model = operation.model
        if model.state in (State.LOADED, State.LOST) and await self._is_kept(operation, spec):
            model.spec, model.confirmed = spec, self._journal.now()
            self._registry.note(model)
            await operation.noted(self._journal)
            return self._answer(model)
        await self._repository.claim(model.model_id)
        if model.state is not State.ABSENT or not self._registry.is_complete:
            await self._take_down(operation, "undo")
            await self._repository.claim(model.model_id)  # the take-down gave the name back
        self._registry.move(model, State.PULLING)
        layout = await self._fetching.fetch(operation, spec)
        for warning in layout.warnings if spec.named is None else ():  # they tell what ModelMesh does not forward
            log.warning("model.warning", model_id=model.model_id, warning=warning)
        try:
            await self._send(operation, partial(self._sizes.measured, model, spec, layout.size_bytes))
        except ModelRefused as refused:
            if not layout.hint:
                raise
            raise ModelRefused(f"{refused.text}; {layout.hint}") from refused
        return self._answer(model)

    async def _restore(self, operation: Operation) -> None:
        """From LOST to LOADED, with the files that are placed."""
        model = operation.model
        if model.content is not None:
            self._crashes.check(model.content)
        await self._send(operation, partial(self._sizes.restored, model), yields=operation.kind == "restore")

    async def _is_kept(self, operation: Operation, spec: ModelSpec) -> bool:
        """
        Whether a model that is LOADED or LOST is what is asked for, and serves, if need be after a restore.

        Storage that cannot be compared with is no reason to stop serving; for what Triton has lost, only a storage that is away
        is none. Triton is asked last: its answer is the one that grows old.
        """
        model = operation.model
        with operation.step("check", self._triton("Triton has not said whether it serves the model")):
            said = await self._fetching.compared(operation, spec)
            if said == "other" or not await self._is_served_or_placed(model):
                return False
        if model.state is State.LOADED:
            return True
        return said != "unknown" and await self._is_sent_again(operation)

    async def _is_served_or_placed(self, model: Model) -> bool:
        """False: neither Triton nor the folder has it as it was. A model that Triton has lost becomes LOST."""
        if model.state is State.LOST or await self._server.is_ready(model.model_id):
            return True
        if not is_untouched(await self._server.index((model.model_id,))):
            return False
        found = await self._repository.identities((model.model_id,))
        if model.placed is None or found.get(model.model_id) != model.placed:
            return False
        self._registry.move(model, State.LOST)
        return True

    async def _is_sent_again(self, operation: Operation) -> bool:
        """Restore the model for its caller, who has compared the content. False: Triton refuses it now; it is undone."""
        operation.is_again = True
        try:
            await self._restore(operation)
        except ModelRefused as refused:
            log.warning("restore.failed", model_id=operation.model.model_id, outcome="refused", cause=refused.text)
            RESTORES.labels("refused").inc()
            operation.is_again = operation.was_lost = False
            await self._undo(operation)
            return False
        return True

    async def _send(self, operation: Operation, size: Callable[[int], int], *, yields: bool = False) -> None:
        """From PULLING (files placed) or LOST to LOADED; `size` makes the model's size of the bytes that Triton reports."""
        model = operation.model
        self._registry.note(model)
        await operation.noted(self._journal)
        try:
            await self._ask_triton(operation, yields=yields)
            reported = await self._measured(operation)
        except ServerDied as died:
            if model.state is State.LOADING:
                operation.has_crashed = True
                self._crashes.died(model.content, died)
            raise
        if model.content is not None:
            self._crashes.succeeded(model.content)
        model.size_bytes = size(reported)
        if not operation.is_again:
            model.confirmed = self._journal.now()
        self._registry.move(model, State.LOADED)
        await operation.noted(self._journal)

    async def _ask_triton(self, operation: Operation, *, yields: bool) -> None:
        model = operation.model
        with ExitStack() as step:
            step.enter_context(operation.step("queue", lambda: self._server.problem or self._server.queue()))

            def on_sent() -> None:
                step.close()
                operation.is_sent = True
                model.generation = self._registry.generation
                self._registry.move(model, State.LOADING)
                step.enter_context(operation.step("triton", lambda: self._server.problem or self._server.obstacle(model.model_id)))

            await self._server.load(model.model_id, on_sent, yields=yields)

    async def _measured(self, operation: Operation) -> int:
        """Bytes that Triton reports of the model; a model without statistics must be ready."""
        model_id = operation.model.model_id
        with operation.step("measure", self._triton("Triton has not told the size of the model")):
            reported = await self._server.reported_bytes(model_id)
            if reported is None and not await self._server.is_ready(model_id):
                if is_untouched(await self._server.index((model_id,))):
                    raise ServerDied("Triton has lost the model just after it had loaded it: it has restarted")
                raise ModelRefused("the model does not serve though Triton has loaded it: its backend has failed")
        return reported or 0

    def _triton(self, words: str) -> Callable[[], str]:
        """What a question to Triton waits for."""
        return lambda: self._server.problem or words

    def _answer(self, model: Model) -> LoadedModel:
        return LoadedModel(size_bytes=model.size_bytes, max_concurrency=self._max_concurrency)

    # ---- down

    async def _undo(self, operation: Operation) -> None:
        """
        Give back whatever a load or restore that has failed may hold. Raises as `_take_down`.

        A model that is LOST is left so where the operation was stopped, and where a call has failed before it sent anything.
        """
        state = operation.model.state
        is_unheard = state is State.LOADED and operation.is_sent  # no caller was told of it
        is_hopeless = state is State.LOST and operation.kind == "restore" and operation.stopped_by is None
        if state in (State.LOADING, State.FAILED) or (is_unheard and operation.kind == "load") or is_hopeless:
            await self._take_down(operation, "undo")
        elif state is State.PULLING:
            with operation.step("undo"):
                await self._give_back(operation)

    async def _take_down(self, operation: Operation, phase: Phase) -> None:
        """
        From LOADED, LOST, FAILED or ABSENT (unknown: Triton is always asked) to ABSENT: memory free, files gone.

        Raises:
            AdapterError: it did not work, or not in time; the model is FAILED.
        """
        with operation.step(phase, partial(self._server.obstacle, operation.model.model_id)):
            self._registry.move(operation.model, State.UNLOADING)
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
                await self._free_memory(model.model_id, min(operation.deadline, self.unload_deadline()))
            with operation.waits.on("the volume to give up the model's files"):
                await self._repository.remove(model.model_id)
        except BaseException:
            self._registry.move(model, State.FAILED)
            raise
        artifact = model.artifact
        self._registry.move(model, State.ABSENT)
        if artifact is not None:
            await self._store.release(artifact)

    async def _free_memory(self, model_id: str, deadline: float) -> None:
        bound = asyncio.timeout_at(deadline)
        try:
            async with bound:
                await self._server.unload(model_id)
        except TimeoutError:
            if not bound.expired():
                raise
            UNLOADS_UNFINISHED.inc()
            obstacle = self._server.obstacle(model_id)
            log.warning("unload.expired", model_id=model_id, cause=obstacle, bound_seconds=self._unload_seconds)
            raise self.unfinished(obstacle) from None
