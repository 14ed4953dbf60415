"""
The gate before all loads and unloads, and the two ways to open it: a purge, or a take-over.

ModelMesh asks for the runtime's status only while it starts, with an empty view of its own: then
everything is purged. When only the adapter has restarted nobody asks, and the models serve on: then
what Triton holds is taken over from its index. One task does either; while it runs the gate is shut.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection
from functools import partial

import structlog

from adapter.errors import UNEXPECTED, AdapterError, Superseded, some
from adapter.lifecycle.operation import Model, Operation
from adapter.lifecycle.registry import Registry
from adapter.lifecycle.sizing import Sizing
from adapter.lifecycle.states import Event, State
from adapter.model import RuntimeState, ServerModel, id_problem, owner_of
from adapter.ports import Neighbours

STATUS_PATIENCE_SECONDS = 1.0
"""How long a status question waits for a purge that may be about to end; ModelMesh asks every 2 s."""
NAMED = 5
"""So many models, or operations, are named in a problem."""
NOT_ASKED = "ModelMesh has not asked for the runtime status yet"
TAKING_OVER = "Triton has not listed the models that it serves, which are taken over first"

log = structlog.stdlib.get_logger(__name__)


class Takeover:
    """The gate, and the one background task that makes our view of Triton true."""

    def __init__(self, *, registry: Registry, neighbours: Neighbours, sizing: Sizing, version: str, reserved_ids: Collection[str]) -> None:
        self._registry = registry
        self._neighbours = neighbours
        self._server = neighbours.server
        self._sizing = sizing
        self._version = version
        self._reserved_ids = reserved_ids
        self._task: asyncio.Task[None] | None = None
        self._is_purged = False
        """A purge has ended, and no status call has been answered READY since."""
        self._gate = asyncio.Event()
        self._problem: str | None = NOT_ASKED
        self._awaited: list[Operation] = []
        """What a purge lets end first."""

    @property
    def problem(self) -> str | None:
        """Why ModelMesh could not be served now, in words; names whom a purge waits for."""
        awaited = [str(operation) for operation in self._awaited if not operation.ended.is_set()]
        return f"purging: waiting for {some(awaited, NAMED)}" if awaited else self._problem

    @property
    def obstacle(self) -> str | None:
        """What the gate waits for, in words; None while it is open."""
        return None if self._gate.is_set() else self._server.problem or self.problem

    async def passed(self) -> None:
        """Wait until the gate is open. Looks again after waking: a purge may have begun in the same moment."""
        while not self._gate.is_set():
            await self._gate.wait()

    def met_modelmesh(self) -> None:
        """A load has succeeded: somebody uses us, though an adapter that restarts alone is not asked for its status."""
        if self._gate.is_set():
            self._problem = None

    def begin(self, take_down: Callable[[str], object]) -> None:
        """Take over what Triton's index shows, in the background; `take_down` gets the ids that were left half loaded."""
        self._begin("take-over", partial(self._take_over, take_down), TAKING_OVER)

    async def status(self) -> RuntimeState:
        """READY once after each purge; every other question begins a purge or joins the one under way."""
        is_purging = self._task is not None and not self._task.done() and self._task.get_name() == "purge"
        if not is_purging and not self._is_empty_since_purge():
            self._is_purged = False
            self._begin("purge", self._purge, "purging: every model is unloaded before the first READY")
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=STATUS_PATIENCE_SECONDS)
        if self._is_empty_since_purge():
            self._is_purged = False
            self._problem = None
            return RuntimeState(is_ready=True, version=self._version, problem=None)
        return RuntimeState(is_ready=False, version=self._version, problem=self._server.problem or self.problem)

    async def close(self) -> None:
        """End the task; the gate stays as it is."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    def _is_empty_since_purge(self) -> bool:
        return self._is_purged and len(self._registry) == 0

    def _begin(self, name: str, work: Callable[[], Awaitable[None]], problem: str) -> None:
        earlier, self._problem = self._task, problem
        self._gate.clear()
        if earlier is not None:
            earlier.cancel()
        self._task = asyncio.create_task(self._run(name, work, earlier), name=name)

    async def _run(self, name: str, work: Callable[[], Awaitable[None]], earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            await asyncio.wait({earlier})
        try:
            await work()
        except AdapterError as error:
            self._problem = error.text
            log.error("takeover.failed", kind=name, cause=error.text)  # noqa: TRY400 - a neighbour's state, not a defect
        except Exception:
            self._problem = UNEXPECTED
            log.exception("takeover.crashed", kind=name)
        self._gate.set()

    async def _purge(self) -> None:
        self._version = await self._server.verify()
        await self._stop_operations()
        if len(self._registry):
            self._problem = f"purging: Triton has not freed {some([repr(model.model_id) for model in self._registry], NAMED)} yet"
        await self._server.purge()
        for model in self._registry:
            if model.artifact is not None:
                await self._neighbours.store.release(model.artifact)
            self._registry.fire(model, Event.PURGE)
        self._registry.is_complete = self._is_purged = True
        self._problem = "purged: ModelMesh has not asked for the runtime status again"
        log.info("runtime.purged", triton=self._version)

    async def _stop_operations(self) -> None:
        self._awaited = self._registry.operations()
        for operation in self._awaited:
            operation.stop(Superseded("ModelMesh has restarted: every model is purged"))
        for operation in self._awaited:
            await operation.ended.wait()

    async def _take_over(self, take_down: Callable[[str], object]) -> None:
        """
        READY models serve on with unknown content; the next load of one is unload, wait, load.

        Everything else is taken down through Triton, also a directory that it has not loaded: the
        load may be on its way.
        """
        versions: dict[str, list[ServerModel]] = defaultdict(list)
        for row in await self._server.index():
            if id_problem(owner_of(row.name), self._reserved_ids) is None:
                versions[owner_of(row.name)].append(row)
        sizes = {name: await self._neighbours.repository.size_bytes(name) for name, rows in versions.items() if _serves(name, rows)}
        self._problem = NOT_ASKED
        for name in versions:
            model = Model(name)
            if name in sizes:
                model.size_bytes = self._sizing.adopted(sizes[name])
                self._registry.fire(model, Event.ADOPT)
            else:
                self._registry.fire(model, Event.RESIDUE)
                take_down(name)
        self._registry.is_complete = True
        adopted = sum(model.state is State.LOADED for model in self._registry)
        if adopted:
            self._problem = None
            log.info("runtime.taken_over", models=adopted)


def _serves(model_id: str, rows: list[ServerModel]) -> bool:
    """Whether Triton serves the model, of a bundle every model, and nothing of it is under way."""
    serving = {row.name for row in rows if row.state == "READY"}
    names = {row.name for row in rows}
    is_whole = bool(serving) if len(names) == 1 else serving == names | {model_id}
    return is_whole and not any(row.state in ("LOADING", "UNLOADING") for row in rows)
