"""
The end of a history: nothing goes wrong any more.

Then each call is answered, nothing stays that no caller was told of, and when all models are unloaded, nothing is left.
"""

from __future__ import annotations

import asyncio
from typing import Any

from adapter.lifecycle.reconciler import RECONCILER
from adapter.lifecycle.states import State
from adapter.model import PROBE
from tests.simulation.adapter_life import ROOT_TASK
from tests.simulation.calls import Calls
from tests.simulation.loop import until, within
from tests.simulation.rules import Rules
from tests.simulation.world import Call, Part, World

BACKGROUND = (RECONCILER, "LOOK", ROOT_TASK)


class Ending(Part):
    """From trouble to an empty adapter."""

    def __init__(self, world: World, rules: Rules, calls: Calls) -> None:
        super().__init__(world)
        self._rules = rules
        self._calls = calls

    async def calm_down(self) -> None:
        """Nothing goes wrong any more; then nothing may be left, and no call may wait."""
        self._world.is_calm = True
        self._world.say("calm")
        self._world.files.rate = 0.0
        for life in self._world.lives:
            life.kill_after, life.is_faulty = None, False
        for endpoint in self._world.endpoints.values():
            endpoint.turn("well", self._loop.time())
        self._world.claim.heal()
        self._triton.unload_call_seconds = 0.0
        self._world.defect_rate = 0.0
        self._triton.index_seconds, self._triton.wrong_rate = self._triton.usual_index_seconds, 0.0
        await self._all_answered()
        if any(held.state == "LOADING" for held in self._triton.models.values()) and "endless" in self._world.kinds.values():
            self._world.kinds = dict.fromkeys(self._world.kinds, "bad")
            self._triton.kill(1.0)  # what only a restart can heal
        self._world.kinds = dict.fromkeys(self._world.kinds, "bad")
        while self._world.adapter is None or not self._triton.is_open or self._triton.is_silent:
            await asyncio.sleep(1)
        await self._idle()
        await asyncio.sleep(3)
        await self._idle()
        self._check_undone()
        if self._world.drain is not None:
            await within(until(self._world.drain.done))
        if self._world.drain is not None or self._random.random() < 0.5:
            await self._unload_all()
        else:
            await within(self._ready())
        await self._idle()
        await within(until(lambda: not list(self._world.repository_dir.glob(f"{PROBE}*"))))  # Triton is looked at again, it was wrong
        self._check_nothing_left()

    async def _all_answered(self) -> None:
        def open_calls() -> list[Call]:
            return [call for call in self._world.calls if call.adapter.life.is_alive and call.task is not None and not call.task.done()]

        if not await within(until(lambda: not open_calls())):
            for call in open_calls():
                self._world.problem(f"{call} was never answered")

    def _others(self) -> list[asyncio.Task[Any]]:
        lives = [life for life in self._world.lives if life.is_alive]
        return [
            task
            for life in lives
            for task in life.tasks
            if not task.done() and task.get_name() not in (*BACKGROUND, "start") and task is not self._world.drain
        ]

    async def _idle(self) -> None:
        """Until nothing runs but what always does."""
        if not await within(until(lambda: self._world.adapter is not None and not self._others())):
            for task in self._others():
                self._world.problem(f"{task.get_name()} never ended: {task!r}")

    def _check_undone(self) -> None:
        """A load without an owner is undone by itself: no unload may ever come for it."""
        assert self._world.adapter is not None
        is_blind = self._world.adapter.life in self._world.blind | self._world.halved
        for model_id in self._world.ids:
            model = self._world.adapter.lifecycle.registry.find(model_id)
            state = model.state if model else State.ABSENT
            held = self._world.holds(model_id)
            if state not in (State.ABSENT, State.LOADED, State.FAILED) and (state is not State.LOST or self._world.drain is None):
                self._world.problem(f"{model_id} stays {state.name}")
            if state is State.LOADED and self._world.drain is None and not is_blind and not self._triton.serves(model_id):
                self._world.problem(f"{model_id} stays LOADED, though Triton has {self._triton.held.get(model_id)}")
            if state is State.ABSENT and held and not is_blind:
                self._world.problem(f"{model_id} is absent, but held: {held}")
            if state is State.LOADED and model_id not in self._world.owned:
                self._world.problem(f"{model_id} stays loaded, though no caller was told")
            if state is State.LOADED and (problem := self._rules.unwhole(self._world.repository_dir / model_id)):
                self._world.problem(f"{model_id} stays loaded, but {problem}")
        self._rules.check_space()

    async def _unload_all(self) -> None:
        for model_id in self._world.ids:
            call = self._calls.unload(model_id)
            assert call is not None
            await until(call.is_over)

    async def _ready(self) -> None:
        """What a new ModelMesh does first."""
        before = self._world.met["READY"]
        for _ in range(200):
            self._calls.status()
            await asyncio.sleep(2)
            if self._world.met["READY"] > before:
                return
        self._world.problem("never READY")

    def _check_nothing_left(self) -> None:
        adapter = self._world.adapter
        assert adapter is not None
        loads = adapter.server._loads
        is_kept = adapter.life in self._world.halved or self._world.files.failed_deletes  # until the next purge or start
        foreign = ("foreign", PROBE) if is_kept else "foreign"
        kept = adapter.volume._left  # what the disk has refused to delete is tried again
        left: dict[str, object] = {
            "loads": [*loads._loads],
            "slots": loads._limits.slots - loads._slots._value,
            "places": loads._limits.places - loads._places._value,
            "models": [model.model_id for model in adapter.lifecycle.registry],
            "memory": self._triton.held,
            "folder": [path.name for path in self._world.repository_dir.iterdir() if not path.name.startswith(foreign)],
            "staging": [path.name for path in adapter.volume.staging_dir.iterdir() if path not in kept],
            "trash": [path.name for path in adapter.volume.trash_dir.iterdir()] if not self._world.files.failed_deletes else [],
            "records": list(adapter.journal.records),
            "reserved": adapter.space.counted_bytes("staging"),
            "placed bytes": adapter.space.counted_bytes("placed"),
            "queue": adapter.server.queue(),
            "artifacts": []
            if self._world.setup.max_bytes or self._world.files.failed_deletes
            else list(adapter.volume.artifacts_dir.iterdir()),
            "loads in Triton": dict(adapter.client.loads),
        }
        for what, found in left.items():
            if found:
                self._world.problem(f"{what} left: {found}")
