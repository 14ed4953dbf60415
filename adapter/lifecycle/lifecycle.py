"""
What ModelMesh can ask for, over one registry: who joins, who waits, who overtakes whom.

A load belongs to its model id, not to a call: it goes on while at least one caller waits for it, and
is undone when the last one has gone, or when an unload or a purge comes. Each call has one bound of
its own, a load its budget and an unload its deadline, over everything that it waits for. An unload
overtakes a load of the same id, waits for its undo, and is never cancelled.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import cast

from adapter import errors
from adapter.lifecycle.facts import Facts
from adapter.lifecycle.fetching import Fetching
from adapter.lifecycle.looks import Looks
from adapter.lifecycle.operation import Operation
from adapter.lifecycle.reconciler import RECONCILER, Reconciler
from adapter.lifecycle.registry import Model, Registry
from adapter.lifecycle.repository_calls import RepositoryCalls
from adapter.lifecycle.states import State
from adapter.lifecycle.worker import Worker
from adapter.model import ModelSpec
from adapter.ports import Ports
from adapter.serving import AlreadyLoaded, KnownModel, LoadedModel, RuntimeState
from adapter.settings.capacity import CapacitySettings
from adapter.telemetry.logs import note
from adapter.waits import end

ANSWER_SECONDS = 1.0
"""
Of a load's budget, kept for its undo and its answer; a tenth of a short budget. A load that waits for storage gives
up that much earlier, and says why.
"""
IDLE_LOOKS = 20
"""A drain ends when more looks in a row, one each 0.05 s, see nothing under way: late unloads are still answered."""


class RuntimeLifecycle:
    """The lifecycle of all models: what ModelMesh can ask for, and a front, beside ModelMesh or without it."""

    def __init__(self, *, ports: Ports, capacity: CapacitySettings, unload_timeout_seconds: float, reserved_ids: frozenset[str]) -> None:
        self._ports = ports
        self.registry = registry = Registry(ports.journal, ports.memory)
        self._capacity = capacity
        self._tasks: list[asyncio.Task[None]] = []
        facts = Facts(registry, capacity, ports.journal, ports.memory)
        ports.memory.follow(facts.seen, lambda: registry.loaded_bytes() if registry.is_complete else None, facts.show)
        facts.show()
        self._fetching = Fetching(ports, facts, capacity.budget_seconds)
        self.load_new = partial(self.load, is_new=True)
        self.predict, self.default_prediction = self._fetching.predict, facts.default_bytes
        self._worker = worker = Worker(registry, ports, self._fetching, facts, capacity.max_concurrency, unload_timeout_seconds)
        looks = Looks(registry, ports, facts, worker, reserved_ids)
        self._reconciler = Reconciler(registry, ports, worker, looks, capacity.max_loading)
        self.repository_calls = RepositoryCalls(self, ports.server, capacity.load_timeout_ms / 1000, worker, reserved_ids)
        worker.on_ended, worker.on_undo = self._reconciler.ended, self._reconciler.go_on
        self._by_name: dict[str, Model] = {}
        """As of `_changes`."""
        self._changes = -1

    def start(self) -> None:
        """Begin to take over what Triton serves, in the background."""
        loop = asyncio.get_running_loop()
        runs = (self._reconciler.run(), self._reconciler.watch())
        self._tasks = [loop.create_task(run, name=RECONCILER) for run in runs]

    async def close(self) -> None:
        """End what runs in the background; for after a drain."""
        self._reconciler.is_draining = True
        await end(*self._tasks)
        self._fetching.workers.close()

    def readiness(self) -> str | None:
        """Why ModelMesh could not be served now, or None."""
        return self._broken() or self._reconciler.problem

    @property
    def obstacle(self) -> str | None:
        """Why no front could load or ask a model now, or None. Whether ModelMesh has asked for anything makes no difference."""
        known = self._broken() or self._reconciler.obstacle
        if known is None and not self.registry.is_complete:
            return self._reconciler.problem or "the models of an earlier process are not taken over yet"
        return known

    def _broken(self) -> str | None:
        if self._reconciler.is_draining:
            return "the adapter is shutting down"
        return self._ports.repository.problem or self._ports.server.problem

    def notice(self) -> str | None:
        """What is told of an adapter that is ready: how far a restore is, and that Triton is slow."""
        return "; ".join(filter(None, (self._reconciler.notice, self._ports.server.notice, self._ports.memory.notice))) or None

    async def load(self, spec: ModelSpec, *, is_new: bool = False) -> LoadedModel:
        """
        Load, join an equal load, or confirm an equal loaded model. Its memory is booked before Triton is asked.

        Cancelling this call leaves the load to its other callers; the last one to go undoes it.

        Args:
            spec: of the model.
            is_new: a front's (`load_new`): the load has one caller, and later callers are told so at once.

        Raises:
            AlreadyLoaded: with `is_new`: it is loaded, or a load or restore of it is under way. What is being unloaded is waited for.
            NoCapacity: it does not fit beside what is loaded, being loaded, and not freed yet.
            ServerUnavailable: what Triton holds is not known.
            AdapterError: it was not loaded, and what had been begun is undone.
        """
        operation, seconds = None, self._capacity.budget_seconds
        try:
            async with asyncio.timeout(seconds) as budget:
                with self._reconciler.hold_restores_of(spec.model_id):
                    operation = await self._claimed(spec, is_new=is_new)
                with operation.joined(cast("float", budget.when()) - min(ANSWER_SECONDS, seconds / 10)):
                    loaded = cast("LoadedModel", await asyncio.shield(operation.result))
                if not is_new:
                    self._reconciler.met_modelmesh()
                return loaded
        except TimeoutError:  # no await before this: the load still knows what it waited for
            late = self._over_budget(spec, operation)
            raise late from late.__cause__
        finally:
            if operation is not None:
                if not operation.callers:
                    operation.stop(errors.Abandoned("its last caller has gone"))
                note(phases=operation.phases())

    async def unload(self, model_id: str) -> None:
        """
        Free everything the model holds, whatever is under way for it. Unknown models are fine.

        Raises:
            UnloadUnfinished: not within the bound; says what the unload was waiting for.
            ServerError, WrongServer: Triton does not take the unload. ModelMesh repeats it, as the one before.
        """
        try:
            async with asyncio.timeout(self._worker.unload_seconds):
                with self._reconciler.hold_restores_of(model_id):
                    await self._free(model_id)
        except TimeoutError:
            obstacle = self._obstacle(model_id, "unload")  # None: an operation has given up just now
            raise self._worker.unfinished(obstacle or self._ports.server.obstacle(model_id)).located(model_id, None) from None

    async def size_of(self, model_id: str) -> int:
        """Size in bytes of a model that is loaded, or that is restored, never 0. Raises ModelNotLoaded."""
        await self._ports.memory.settled(model_id)
        model = self.registry.find(model_id)
        is_back_soon = model is not None and model.state is State.LOADING and model_id in self.registry.lost
        if model is None or not (is_back_soon or model.state in (State.LOADED, State.LOST)):
            raise errors.ModelNotLoaded("the model is not loaded").located(model_id, None)
        return model.size_bytes

    async def status(self) -> RuntimeState:
        """READY when everything is purged; a call means that ModelMesh has restarted with an empty view."""
        is_purged = await self._reconciler.purged()
        if is_purged and self._capacity.source == "measured":
            await self._ports.memory.settled()
        is_ready = is_purged and not self._reconciler.is_draining
        return RuntimeState(is_ready, self._reconciler.version, None if is_ready else self.readiness())

    async def drain(self, grace_seconds: float) -> bool:
        """
        Take no new loads; let what runs finish, then undo it. Unloads are answered all the time.

        Returns:
            Whether everything had settled within the grace period.
        """
        self._reconciler.is_draining = True
        for model in self.registry.all_in(State.LOST):
            self.registry.count_lost(model, "ended")
        for operation in self.registry.operations():
            if operation.is_queued_restore or operation.is_background:  # LOST or FAILED, for the next process
                operation.stop(errors.Draining("the adapter is shutting down"))
        deadline = asyncio.get_running_loop().time() + grace_seconds
        if await self._is_settled(deadline - grace_seconds * 0.4):
            return True
        for operation in self.registry.operations():
            operation.stop(errors.Draining("the adapter is shutting down"))
        return await self._is_settled(deadline)

    # ---- what fronts see: by the names that callers gave, and never waiting

    def known(self) -> list[KnownModel]:
        """
        All models, sorted by name.

        Raises:
            ServerUnavailable: an earlier process had models, and Triton has not told yet which of them it serves.
        """
        self._check_complete()
        return [self._seen(model) for _, model in sorted(self._names().items())]

    def find(self, name: str) -> KnownModel | None:
        """One of them. Raises ServerUnavailable: as `known`, and it is not known yet whether there is one of this name."""
        return self._found(self._names().get(name))

    def find_id(self, model_id: str) -> KnownModel | None:
        """As `find`, by Triton's name. Raises ServerUnavailable."""
        return self._found(self.registry.find(model_id))

    def _found(self, model: Model | None) -> KnownModel | None:
        if model is not None and _is_anything(model):
            return self._seen(model)
        self._check_complete()
        return None

    def _check_complete(self) -> None:
        """Of an earlier process's models it is known only that there were some."""
        if not self.registry.is_complete and any(self.registry.find(model_id) is None for model_id in self._ports.journal.records):
            raise errors.ServerUnavailable(str(self.obstacle))

    def _names(self) -> dict[str, Model]:
        """A name can only come or go with a change in the registry."""
        if self._changes != self.registry.changes:
            there = [model for model in self.registry if _is_anything(model)]
            self._by_name = {model.named.name if model.named else model.model_id: model for model in there}
            self._changes = self.registry.changes
        return self._by_name

    def _seen(self, model: Model) -> KnownModel:
        named, is_going = model.named, model.is_going
        return KnownModel(
            model_id=model.model_id,
            name=named.name if named else model.model_id,
            url=named.url if named else str(self._ports.repository.folder / model.model_id),
            is_serving=not is_going and model.state is State.LOADED,
            is_coming_back=not is_going and model.model_id in self.registry.lost,
            is_going=is_going,
            placed=model.placed,
        )

    # ---- loads and unloads

    async def _claimed(self, spec: ModelSpec, *, is_new: bool) -> Operation:
        """A new load waits for what is going, and finishes what has FAILED; of an id that has anything else it waits for nothing."""
        while True:
            if is_new:
                self._check_new(spec.model_id)
            await self._reconciler.passed()
            if is_new:
                self._check_new(spec.model_id)
            if self._reconciler.is_draining:
                raise errors.Draining("the adapter is shutting down and takes no new loads").located(spec.model_id, None)
            running = self.registry.operation_on(spec.model_id)
            if running is None:
                return self._worker.load(spec)
            if running.can_be_joined_by(spec):
                return running
            if running.is_queued_restore:
                running.stop(errors.Superseded("a load of the model takes the place of its restore"))
            await running.wait()
            if running.kind == "restore" and isinstance(running.outcome, errors.ServerDied):  # not twice for one call
                raise running.outcome

    def _check_new(self, model_id: str) -> None:
        """Raises AlreadyLoaded, ServerUnavailable: callers of a front try again, and nothing is booked beside what is not known."""
        model = self.registry.find(model_id)
        if model is not None and not model.is_going:
            words = "is loaded already" if model.state is State.LOADED else "is being loaded already"
            raise AlreadyLoaded(f"the model {words}").located(model_id, None)
        is_gate_shut = self._reconciler.obstacle is not None
        problem = self._ports.server.problem if is_gate_shut or self._reconciler.is_draining else self.obstacle
        if problem is not None:
            raise errors.ServerUnavailable(problem).located(model_id, None)

    async def _free(self, model_id: str) -> None:
        while True:
            await self._reconciler.passed()
            running = self.registry.operation_on(model_id) or self._worker.unload(model_id)
            if running.kind == "unload" and not running.is_ending:
                running.is_background = False
                with suppress(errors.UnloadUnfinished):  # it has begun before this call, and ends before it
                    await asyncio.shield(running.result)
                    return
            running.stop(errors.Superseded("an unload of the model overtook its load"))
            await running.wait()

    def _over_budget(self, spec: ModelSpec, operation: Operation | None) -> errors.AdapterError:
        if operation is not None and operation.outcome is not None:  # it has failed before, and its undo takes long
            return operation.outcome
        slow = operation.slow_phases() if operation else f"queue {self._capacity.budget_seconds:.1f} s"
        cause = operation.obstacle if operation else self._obstacle(spec.model_id, "load")
        announced = self._capacity.load_timeout_ms / 1000
        budget = f"not loaded within {self._capacity.budget_seconds:.1f} s (the announced timeout is {announced:g} s)"
        return errors.BudgetExceeded("; ".join(filter(None, (cause, budget)))).located(spec.model_id, slow)

    def _obstacle(self, model_id: str, kind: str) -> str | None:
        """What a call of this kind waits for: the operation that the id has (an unload joins an unload), or the gate."""
        running = self.registry.operation_on(model_id)
        if running is None:
            return self._reconciler.obstacle
        return running.obstacle if running.kind == kind == "unload" else f"waiting for {running}"

    async def _is_settled(self, deadline: float) -> bool:
        time, looks_idle = asyncio.get_running_loop().time, 0
        while time() < deadline:
            looks_idle = 0 if self.registry.operations() else looks_idle + 1
            if looks_idle > IDLE_LOOKS:
                return True
            await asyncio.sleep(0.05)
        return not self.registry.operations()


def _is_anything(model: Model) -> bool:
    """Not an unload of something that was never there, or that is gone."""
    return model.state is not State.ABSENT or (model.operation is not None and model.operation.kind == "load")
