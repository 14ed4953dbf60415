"""
Make our view of Triton true: empty everything, or take over what an earlier process left.

ModelMesh asks for the runtime's status only while it starts, with an empty view of its own: then
everything is purged. When only the adapter has restarted nobody asks, and the models serve on: then
the view is rebuilt from Triton's index. Loads and unloads wait at the gate until either is done.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable

import structlog

from adapter.errors import AdapterError, Superseded
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.sizing import Sizing
from adapter.lifecycle.states import Event, State
from adapter.model import RuntimeState, ServerModel, id_problem, owner_of
from adapter.ports import ModelRepository, ModelServer, ModelStore

STATUS_PATIENCE_SECONDS = 1.0
"""How long a status question waits for a purge that may be about to end; ModelMesh asks every 2 s."""
NOT_ASKED = "ModelMesh has not asked for the runtime status yet"

log = structlog.stdlib.get_logger(__name__)


class View:
    """The gate, and the one background task that makes the view true."""

    def __init__(
        self,
        *,
        registry: Registry,
        store: ModelStore,
        repository: ModelRepository,
        server: ModelServer,
        sizing: Sizing,
        version: str,
    ) -> None:
        self._registry = registry
        self._store = store
        self._repository = repository
        self._server = server
        self._sizing = sizing
        self._version = version
        self._task: asyncio.Task[None] | None = None
        self._purged = False
        """A purge has ended whose READY nobody has heard yet."""
        self._gate = asyncio.Event()
        self.problem: str | None = NOT_ASKED

    def adopt(self, take_down: Callable[[Model], None]) -> None:
        """Begin to rebuild the view from Triton's index; `take_down` gets what was left half loaded."""
        self._task = asyncio.create_task(self._adopt(take_down), name="adopt")

    async def until_true(self) -> None:
        """Wait until the view is true. Looks again after waking: a purge may have begun in the same moment."""
        while not self._gate.is_set():
            await self._gate.wait()

    def met_modelmesh(self) -> None:
        """A load has succeeded: somebody uses us, though an adapter that restarts alone is not asked for its status."""
        self.problem = None

    async def status(self) -> RuntimeState:
        """READY once after each purge; every other question begins a purge or joins the one under way."""
        if not self._is_purging() and not self._is_empty_since_purge():
            self._begin_purge()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=STATUS_PATIENCE_SECONDS)
        if self._is_empty_since_purge():
            self._purged = False
            self.problem = None
            return RuntimeState(is_ready=True, version=self._version, problem=None)
        return RuntimeState(is_ready=False, version=self._version, problem=self._server.problem or self.problem)

    def _is_purging(self) -> bool:
        return self._task is not None and not self._task.done() and self._task.get_name() == "purge"

    def _is_empty_since_purge(self) -> bool:
        return self._purged and len(self._registry) == 0

    def _begin_purge(self) -> None:
        self._purged = False
        self._gate.clear()
        self.problem = "purging: every model is unloaded before the first READY"
        self._task = asyncio.create_task(self._purge(earlier=self._task), name="purge")

    async def _purge(self, earlier: asyncio.Task[None] | None) -> None:
        if earlier is not None:
            earlier.cancel()
            await asyncio.wait({earlier})
        try:
            self._version = await self._server.verify()
            await self._stop_operations()
            await self._server.purge()
            for model in self._registry:
                if model.artifact is not None:
                    await self._store.release(model.artifact)
                self._registry.fire(model, Event.PURGE)
            self._registry.is_complete = self._purged = True
            log.info("runtime.purged", triton=self._version)
        except AdapterError as error:
            self.problem = error.text
            log.error("purge.failed", cause=error.text)  # noqa: TRY400 - a neighbour's state, not a defect
        except Exception:
            self.problem = "internal error of the adapter; its log has the details"
            log.exception("purge.crashed")
        finally:
            self._open_gate()

    async def _stop_operations(self) -> None:
        operations = self._registry.operations()
        for operation in operations:
            operation.stop(Superseded("ModelMesh has restarted: every model is purged"))
        for operation in operations:
            await operation.ended.wait()

    async def _adopt(self, take_down: Callable[[Model], None]) -> None:
        try:
            await self._take_over(take_down)
        except AdapterError as error:
            self.problem = error.text
            log.error("adoption.failed", cause=error.text)  # noqa: TRY400 - a neighbour's state, not a defect
        except Exception:
            log.exception("adoption.crashed")
        self._open_gate()

    def _open_gate(self) -> None:
        """Only the newest task may: a purge that overtakes another task has closed the gate for itself."""
        if asyncio.current_task() is self._task:
            self._gate.set()

    async def _take_over(self, take_down: Callable[[Model], None]) -> None:
        """
        READY models serve on with unknown content; the next load of one is unload, wait, load.

        Everything else is taken down through Triton, also a directory that it has not loaded: the
        load may be on its way.
        """
        versions: dict[str, list[ServerModel]] = defaultdict(list)
        for row in await self._server.index():
            if id_problem(owner_of(row.name)) is None:
                versions[owner_of(row.name)].append(row)
        for name, rows in versions.items():
            model = Model(name)
            if _serves(name, rows):
                model.size_bytes = self._sizing.adopted(self._repository.size_bytes(name))
                self._registry.fire(model, Event.ADOPT)
            else:
                self._registry.fire(model, Event.RESIDUE)
                take_down(model)
        self._registry.is_complete = True
        adopted = sum(model.state is State.LOADED for model in self._registry)
        if adopted:
            self.problem = None
            log.info("runtime.adopted", models=adopted)


def _serves(model_id: str, rows: list[ServerModel]) -> bool:
    """Whether Triton serves the model, of a bundle every model, and nothing of it is under way."""
    serving = {row.name for row in rows if row.state == "READY"}
    names = {row.name for row in rows}
    is_whole = bool(serving) if len(names) == 1 else serving == names | {model_id}
    return is_whole and not any(row.state in ("LOADING", "UNLOADING") for row in rows)
