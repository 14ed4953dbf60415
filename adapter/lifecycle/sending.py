"""
The last steps of a load and of a restore: have Triton load what is placed, and make sure that Triton has it.

The model is LOADING from the moment of sending; until then there are only files to undo. A Triton that dies in between is
counted against the content.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from adapter.errors import CrashesTriton, ServerUnavailable
from adapter.lifecycle.crashes import CrashCounts
from adapter.lifecycle.operation import JOURNAL, Operation
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.states import Event, State
from adapter.ports import Neighbours


class Sending:
    """Brings a model whose files are placed to LOADED."""

    def __init__(self, *, registry: Registry, neighbours: Neighbours, crashes: CrashCounts) -> None:
        self._registry = registry
        self._server = neighbours.server
        self._journal = neighbours.journal
        self._crashes = crashes

    async def send(self, operation: Operation, size: Callable[[int], int], *, yields: bool = False) -> None:
        """
        From PULLING (files placed) or LOST to LOADED; `size` makes the model's size of the bytes that Triton reports.

        Raises:
            CrashesTriton: Triton has died over this content, and not for the first time; it is counted.
            ServerUnavailable: it has died, likewise counted.
            NoCapacity: from `size`; Triton has the model, and the caller's undo unloads it.
            ModelRefused, WrongServer: as `ModelServer.load`.
        """
        model = operation.model
        event = Event.RESEND if model.state is State.LOST else Event.SEND
        self._registry.note(model)
        with operation.waits.on(JOURNAL):
            await self._journal.written()
        try:
            await self._load(operation, event, yields=yields)
            reported = await self._measure(operation)
        except ServerUnavailable as died:
            self._count(operation, died)
            raise
        if model.content is not None:
            self._crashes.succeeded(model.content)
        model.size_bytes = size(reported)
        operation.has_loaded = True
        if not operation.is_again:
            model.confirmed = self._journal.now()
        self._registry.fire(model, Event.READY)
        with operation.waits.on(JOURNAL):
            await self._journal.written()

    async def _load(self, operation: Operation, event: Event, *, yields: bool) -> None:
        model = operation.model
        with ExitStack() as step:
            step.enter_context(operation.step("queue", lambda: self._server.problem or self._server.queue()))

            def on_sent() -> None:
                step.close()
                operation.told_sent()
                self._registry.fire(model, event)
                step.enter_context(operation.step("triton", lambda: self._server.problem or self._server.obstacle(model.model_id)))

            await self._server.load(model.model_id, on_sent, yields=yields)

    async def _measure(self, operation: Operation) -> int:
        model_id = operation.model.model_id
        with operation.step("measure", lambda: self._server.problem or "Triton has not told the size of the model"):
            reported = await self._server.reported_bytes(model_id)
            if reported is None and not await self._server.is_ready(model_id):
                raise ServerUnavailable("Triton has lost the model just after it had loaded it: it has restarted, or the backend has died")
        return reported or 0

    def _count(self, operation: Operation, died: ServerUnavailable) -> None:
        """Also raises CrashesTriton, when that was once too often."""
        model = operation.model
        if model.state is not State.LOADING:
            return
        operation.has_crashed = True
        if model.content is not None:
            self._crashes.count(model.content.crash)
            try:
                self._crashes.check(model.content)
            except CrashesTriton as often:
                raise often from died
