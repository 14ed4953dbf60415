"""One life of the adapter after the other: started over the same world, killed, and watched."""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from adapter.errors import StartError
from adapter.lifecycle.operation import Operation
from adapter.lifecycle.registry import Model as Known
from adapter.lifecycle.states import IllegalMoveError, State
from adapter.model import PROBE
from adapter.volume.volume import Volume
from tests.simulation.adapter_life import Adapter, assembled, begin
from tests.simulation.client import Client
from tests.simulation.loop import KIND, Life
from tests.simulation.rules import Rules
from tests.simulation.store import Clients, UnforeseenError
from tests.simulation.world import Part, World


class Lives(Part):
    """The adapter's processes."""

    def __init__(self, world: World, rules: Rules) -> None:
        super().__init__(world)
        self._rules = rules

    def start(self) -> None:
        """A new process over the same world."""
        life = Life(f"adapter {len(self._world.lives) + 1}")
        self._world.lives.append(life)
        self._world.say(f"{life} starts")
        self._world.adapter = None
        self._world.owned |= {name for name, state in self._triton.held.items() if state == "READY"}
        self._loop.create_task(self._started(life), name="start", context=self._loop.in_name_of(life))

    async def _started(self, life: Life) -> None:
        volume: Volume | None = None
        try:
            if self._random.random() < 0.1 and not self._world.is_calm and not self._world.has_neighbours:
                life.kill_after = self._random.randint(0, 20)
            life.is_faulty = not self._world.is_calm
            self._world.volume = volume = Volume(self._world.repository_dir, self._world.setup.root / "models" / "_adapter")
            volume.claim()
            client = Client(self._triton, self._world.setup.load_threads)
            client.on_wrong = partial(self._world.blind.add, life)
            adapter = assembled(self._world.setup, life, volume, client, Clients(self._world.endpoints, self._random, self._rules.asked))
        except StartError as error:
            self._world.meet("start failed")
            self._world.say(str(error))
            self.kill(life, how="for it cannot start")
            return
        self._watch(adapter)

        def listen() -> None:
            self._world.adapter = adapter

        await begin(adapter, listen)

    def kill(self, life: Life, *, how: str) -> None:
        """Like a kill -9: its callers lose their connection, and nothing of it happens any more."""
        if not life.is_alive:
            return
        operations = self._world.adapter.lifecycle.registry.operations() if self._world.adapter is not None else []
        self._world.meet(f"adapter killed {how}")
        for operation in operations:
            self._world.met[f"adapter killed in {operation.kind}, {operation.model.state.value}"] += 1
        life.is_alive = False
        self._world.files.close(life)
        if self._world.volume is not None:
            self._world.volume.close()
        for call in self._world.calls:
            if call.adapter.life is life and call.ended_at == math.inf:
                call.ended_at = self._loop.time()
        self._world.drain = None
        world = self._loop.in_name_of(None)
        self._loop.call_soon(self._world.hub.kill, life, context=world)
        self._loop.call_later(self._random.choice((0.01, 0.5, 5.0)), self.start, context=world)
        self._world.adapter = None

    def _watch(self, adapter: Adapter) -> None:
        """Notice what the registry would only log."""
        registry = adapter.lifecycle.registry
        move, start = registry.move, registry.begin

        def watched_move(model: Known, state: State) -> None:
            before = model.state
            try:
                move(model, state)
            except IllegalMoveError as defect:
                self._world.problem(f"{model.model_id}: {defect}")
                raise
            self._world.say(f"{model.model_id} {before.name} -> {state.name}")
            if before is State.ABSENT and state in (State.LOADED, State.LOST):
                self._world.owned.add(model.model_id)
            if before is State.LOADING and state is State.LOADED:
                self._world.ready_at[model.model_id] = self._loop.time()
            if state is State.ABSENT and adapter is self._world.adapter:
                self._world.owned.discard(model.model_id)

        def watched_begin(kind: Any, model_id: str, *given: Any, **more: Any) -> Operation:
            if kind != "unload" and "shutting down" in (adapter.lifecycle.readiness() or ""):
                self._world.problem(f"{model_id}: a {kind} was begun while draining")
            if kind == "restore":
                self._world.meet("restore")
                restores = sum(other.kind == "restore" and not other.is_ending for other in registry.operations())
                if restores >= self._world.setup.capacity.max_loading:
                    self._world.problem(f"{model_id}: {restores} restores at once")
            if registry.operation_on(model_id) is not None:
                self._world.problem(f"{model_id}: a {kind} begins beside {registry.operation_on(model_id)}")
            self._world.begun[model_id].append(self._loop.time())
            self._world.say(f"{kind} {model_id} begins")
            KIND.set(kind)
            return start(kind, model_id, *given, **more)

        self._make_fail(adapter)
        registry.move = watched_move  # type: ignore[method-assign] # a spy on the one place where all transitions pass
        registry.begin = watched_begin  # type: ignore[method-assign] # the same

    def _make_fail(self, adapter: Adapter) -> None:
        """Some changes of Triton's folder end by an unforeseen exception: before anything has happened, or after everything has."""
        for name in ("place", "remove", "clear", "sweep"):
            setattr(adapter.repository, name, self._failing(adapter, name, getattr(adapter.repository, name)))
        adapter.client.unload = self._failing(adapter, "tell", adapter.client.unload)  # type: ignore[method-assign] # as above

    def _failing(
        self, adapter: Adapter, name: str, work: Callable[..., Coroutine[Any, Any, Any]]
    ) -> Callable[..., Coroutine[Any, Any, Any]]:
        async def failing(*arguments: Any, **named: Any) -> Any:
            choice = self._random.random()
            if arguments and str(arguments[0]).startswith(PROBE):
                choice = 1.0  # a probe that cannot be removed stays until the next purge
            if choice < self._world.defect_rate / 2:
                raise self._defect(adapter, f"before {name}")
            result = await work(*arguments, **named)
            if choice < self._world.defect_rate:
                raise self._defect(adapter, f"after {name}")
            return result

        return failing

    def _defect(self, adapter: Adapter, when: str) -> UnforeseenError:
        is_in_purge = KIND.get() is None
        if is_in_purge:
            self._world.halved.add(adapter.life)
        self._world.meet(f"a defect {when}{' in a purge' if is_in_purge else ''}")
        return UnforeseenError()
