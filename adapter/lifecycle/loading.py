"""
The steps of a load, over the ports: check, list, pull, place, send, measure; of a restore: send, measure.

Every step may be cancelled; what is to be undone is read from the model's state. The model is LOADING from the moment in which
Triton is asked; until then there are only files to undo. A Triton that dies between that and the answer is counted against the
content.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial

import structlog

from adapter.errors import (
    AdapterError,
    CrashesTriton,
    ModelRefused,
    ServerDied,
    SourceChanged,
    SourceNotFound,
    SourceUnavailable,
)
from adapter.inventory import is_untouched
from adapter.lifecycle.crashes import CrashCounts
from adapter.lifecycle.freeing import Freeing
from adapter.lifecycle.operation import Model, Operation
from adapter.lifecycle.planning import Planning
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.sizes import Sizes
from adapter.lifecycle.states import State
from adapter.model import Layout, ModelSpec
from adapter.ports import Ports
from adapter.serving import LoadedModel
from adapter.settings import CapacitySettings
from adapter.telemetry.metrics import RESTORES

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
        ports: Ports,
        capacity: CapacitySettings,
        sizes: Sizes,
        planning: Planning,
        freeing: Freeing,
        crashes: CrashCounts,
    ) -> None:
        self._registry = registry
        self._store = ports.store
        self._repository = ports.repository
        self._server = ports.server
        self._journal = ports.journal
        self._sizes = sizes
        self._planning = planning
        self._freeing = freeing
        self._crashes = crashes
        self._max_concurrency = capacity.max_concurrency
        self._look_seconds = min(LOOK_SECONDS, capacity.budget_seconds / 3)

    async def load(self, operation: Operation, spec: ModelSpec) -> LoadedModel:
        """Bring the model to LOADED with the content of `spec`. On any exception the caller runs `Freeing.undo`."""
        model = operation.model
        if model.state in (State.LOADED, State.LOST):
            with operation.step("check", self._triton("Triton has not said whether it serves the model")):
                is_equal = await self._is_equal(operation, spec)
            if is_equal and (model.state is State.LOADED or await self._is_sent_again(operation)):
                return await self._confirmed(operation, spec)
        if model.state is State.LOST:
            RESTORES.labels("ended").inc()
        await self._repository.claim(model.model_id)
        if model.state is not State.ABSENT or not self._registry.is_complete:
            await self._freeing.take_down(operation, "undo")
            await self._repository.claim(model.model_id)  # the name was given up
        self._registry.move(model, State.PULLING)
        layout = await self._pull(operation, spec)
        for warning in layout.warnings if spec.named is None else ():  # they tell what ModelMesh does not forward
            log.warning("model.warning", model_id=model.model_id, warning=warning)
        try:
            await self._send(operation, partial(self._sizes.measured, model, spec, layout.size_bytes))
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
        await self._send(operation, partial(self._sizes.restored, model), yields=operation.kind == "restore")

    # ---- whether there is anything to load

    async def _is_equal(self, operation: Operation, spec: ModelSpec) -> bool:
        """
        Whether a model that is LOADED or LOST is what is asked for; then it is LOADED where Triton serves it, else LOST.

        Equal is: same type, path and key, and one listing shows the same content. Without versions no listing does. Storage or its
        configuration that cannot be asked, or does not answer, is no reason to stop serving; for what Triton has lost, only a
        storage that is away is none. Triton is asked last: its answer is the one that grows old.
        """
        model, digests = operation.model, self._journal.digests
        if model.content is None or model.content.spec != digests.of_spec(spec):
            return False
        failure: AdapterError | TimeoutError | None = None
        try:
            async with asyncio.timeout(self._look_seconds):
                stored = await self._store.open(spec, operation.waits)
            if not stored.listing.is_versioned or await self._planning.content(spec, stored.listing, digests) != model.content:
                return False
        except SourceNotFound:
            return False
        except (AdapterError, TimeoutError) as error:
            failure = error
        if not await self._is_served_or_placed(model):
            return False
        if failure is not None:
            if model.state is State.LOST and not _is_away(failure):
                return False
            cause = str(failure) or f"storage has not listed the model within {self._look_seconds:g} s"
            log.warning("listing.skipped", model_id=spec.model_id, cause=cause)
        return True

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
            await self.restore(operation)
        except ModelRefused as refused:
            log.warning("restore.failed", model_id=operation.model.model_id, outcome="refused", cause=refused.text)
            RESTORES.labels("refused").inc()
            operation.is_again = False
            await self._freeing.undo(operation)
            return False
        return True

    async def _confirmed(self, operation: Operation, spec: ModelSpec) -> LoadedModel:
        model = operation.model
        model.spec, model.confirmed = spec, self._journal.now()
        self._registry.note(model)
        await operation.noted(self._journal)
        return self._answer(model)

    # ---- files

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
        content = await self._planning.content(spec, stored.listing, self._journal.digests)
        self._crashes.check(content)
        self._sizes.admit(model, spec, layout.size_bytes, content)
        model.spec, model.content = spec, content
        with operation.step("pull"):
            model.artifact = await stored.fetch(layout.files)
        with operation.step("place"):
            layout = await self._planning.finished(layout, stored, model.artifact)
        with operation.step("place"), operation.waits.on("the volume to take the model's files"):
            model.placed = await self._repository.place(model.model_id, layout, model.artifact)
        return layout

    # ---- Triton

    async def _send(self, operation: Operation, size: Callable[[int], int], *, yields: bool = False) -> None:
        """
        From PULLING (files placed) or LOST to LOADED; `size` makes the model's size of the bytes that Triton reports.

        Raises:
            CrashesTriton: Triton has died over this content, and not for the first time; it is counted.
            ServerDied: it has died, likewise counted.
            NoCapacity: from `size`; Triton has the model, and the caller's undo unloads it.
            ModelRefused: also where its backend has failed at once.
            WrongServer: as `ModelServer.load`.
        """
        model = operation.model
        self._registry.note(model)
        await operation.noted(self._journal)
        try:
            await self._ask_triton(operation, yields=yields)
            reported = await self._measured(operation)
        except ServerDied as died:
            if model.state is State.LOADING:
                self._count_death(operation, died)
            raise
        if model.content is not None:
            self._crashes.succeeded(model.content)
        model.size_bytes = size(reported)
        operation.has_loaded = True
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
                operation.mark_sent()
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

    def _count_death(self, operation: Operation, died: ServerDied) -> None:
        """Raises CrashesTriton, when that was once too often."""
        content = operation.model.content
        operation.has_crashed = True
        if content is not None:
            self._crashes.count(content.crash)
            try:
                self._crashes.check(content)
            except CrashesTriton as often:
                raise often from died

    def _triton(self, words: str) -> Callable[[], str]:
        """What a question to Triton waits for."""
        return lambda: self._server.problem or words

    def _answer(self, model: Model) -> LoadedModel:
        return LoadedModel(size_bytes=model.size_bytes, max_concurrency=self._max_concurrency)


def _is_away(failure: AdapterError | TimeoutError) -> bool:
    return isinstance(failure, TimeoutError) or (isinstance(failure, SourceUnavailable) and failure.can_pass)
