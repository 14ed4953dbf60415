"""What ModelMesh asks, and what it may be answered."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from adapter.errors import (
    UNEXPECTED,
    Abandoned,
    AdapterError,
    DiskFull,
    ModelNotLoaded,
    NoCapacity,
    ServerError,
    ServerUnavailable,
    Superseded,
    VolumeFailed,
    WrongServer,
)
from adapter.model import ModelSpec
from adapter.serving import AlreadyLoaded, KnownModel
from tests.simulation.adapter_life import UNLOAD_SECONDS
from tests.simulation.store import UnforeseenError, said
from tests.simulation.world import FRONT_BYTES, Call, Part

PREDICT_SECONDS = 0.5
"""ModelMesh's own patience."""
STATUS_SECONDS = 2.0


class Calls(Part):
    """Each call is a task whose answer is checked."""

    def call(
        self, kind: str, model_id: str, ask: Callable[[Call], Coroutine[Any, Any, None]], spec: ModelSpec | None = None
    ) -> Call | None:
        """Begin a call; it may be cancelled at a random time. None: no adapter listens."""
        if self._world.adapter is None:
            return None
        call = Call(next(self._world.numbers), kind, model_id, spec, self._world.adapter, self._loop.time())
        self._world.say(f"{call} is asked")
        context = self._loop.in_name_of(self._world.adapter.life)
        call.task = self._loop.create_task(self._answered(call, ask), name=str(call), context=context)
        call.task.add_done_callback(lambda _: setattr(call, "ended_at", min(call.ended_at, self._loop.time())))
        self._world.calls.append(call)
        if not self._world.is_calm and not self._world.has_neighbours and self._random.random() < (0.02 if self._world.is_quiet else 0.25):
            self._loop.call_later(self._random.choice((0.0, 0.001, 0.01, 0.1, 0.5, 1.0, 3.0, 20.0)), call.cancel)
        return call

    async def _answered(self, call: Call, ask: Callable[[Call], Coroutine[Any, Any, None]]) -> None:
        """Every answer is one that the contract knows."""
        outcome = "done"
        try:
            await ask(call)
        except asyncio.CancelledError:
            outcome = "cancelled"
            if not call.is_cancelled:
                self._world.problem(f"{call}: cancelled, though its caller waits")
            self._note_end_of_load(call)
        except AdapterError as error:
            outcome = f"{type(error).__name__}: {error.text}"
            if not self._may_be_told(call, error):
                self._world.problem(f"{call}: {error!r} because of {error.__cause__!r}")
            self._note_end_of_load(call)
        except Exception as error:
            outcome = repr(error)
            self._world.problem(f"{call}: {error!r}")
        finally:
            call.ended_at = self._loop.time()
        call.outcome = outcome.partition(":")[0]
        self._world.met[f"{call.kind}: {call.outcome}"] += 1
        self._world.say(f"{call}: {outcome}")
        took = call.ended_at - call.began_at
        bounds = {
            "load": self._world.setup.capacity.budget_seconds,
            "unload": UNLOAD_SECONDS,
            "predict": PREDICT_SECONDS,
            "status": STATUS_SECONDS,
        }
        self.check(call, took < bounds.get(call.kind, 0.1) + 0.01, f"answered after {took:.2f} s")

    def _may_be_told(self, call: Call, error: AdapterError) -> bool:
        """Whether this answer is one that the call's contract lists."""
        if error.text == UNEXPECTED:
            is_told_to_front = isinstance(error, ServerUnavailable) and call.adapter.life in self._world.halved
            return isinstance(error.__cause__, UnforeseenError) or is_told_to_front
        if call.kind == "unload":
            is_of_disk = type(error) is AdapterError or isinstance(error, DiskFull | VolumeFailed)
            return isinstance(error, ServerError | WrongServer) or (is_of_disk and bool(self._world.files.failed))
        if isinstance(error, Superseded):
            return any(
                other.kind == "status" or (other.kind, other.model_id) == ("unload", call.model_id)
                for other in self._world.calls
                if other.ended_at >= call.began_at
            )
        if call.kind == "load":
            return not isinstance(error, Abandoned)
        return isinstance(error, ModelNotLoaded)

    def _note_end_of_load(self, call: Call) -> None:
        """A caller that goes at the very moment when the model becomes ready has had it: its unload will come."""
        if call.kind == "load" and self._loop.time() - self._world.ready_at.get(call.model_id, -1.0) < 1.0:
            self._world.owned.add(call.model_id)

    def is_alone(self, call: Call) -> bool:
        """Whether no other call was of this id, or a purge, meanwhile."""
        return not any(
            other is not call
            and other.adapter is call.adapter
            and other.ended_at >= call.began_at
            and (other.kind == "status" or (other.model_id == call.model_id and (other.kind == "unload" or other.spec != call.spec)))
            and other.kind in ("status", "unload", "load")
            for other in self._world.calls
        )

    def load(self, spec: ModelSpec) -> Call | None:
        async def ask(call: Call) -> None:
            self._world.last_load[spec.model_id] = call.number
            loaded = await call.adapter.lifecycle.load(spec)
            self._world.owned.add(spec.model_id)
            self.check(call, loaded.size_bytes > 8192, f"the size is {loaded.size_bytes}")
            self._check_loaded(call, spec)

        return self.call("load", spec.model_id, ask, spec)

    def load_new(self, spec: ModelSpec) -> Call | None:
        """By a front. What is there already, and stays, is told without any wait."""
        assert spec.named is not None
        name = spec.named.name

        async def ask(call: Call) -> None:
            self._world.last_load[spec.model_id] = call.number
            before = self._seen(call, name)
            is_there = before is not None and not before.is_going
            try:
                loaded = await call.adapter.lifecycle.load_new(spec)
            except AlreadyLoaded:
                is_at_once = self._loop.time() == call.began_at
                self.check(call, not is_there or is_at_once, "what is there already is told late")
                self._world.meet("a front is told at once" if is_at_once else "a front was overtaken")
                raise
            except NoCapacity:
                self._world.meet("no capacity for a front's model")
                raise
            self.check(call, not is_there, "loaded over what was there")
            self._world.owned.add(spec.model_id)
            self.check(call, loaded.size_bytes == FRONT_BYTES, f"the size is {loaded.size_bytes}")
            self._check_loaded(call, spec)
            found = self._seen(call, name)
            if self.is_alone(call):
                self.check(call, found is not None and found.url == spec.named.url, f"loaded, but known as {found}")  # type: ignore[union-attr] # a front's

        return self.call("load", spec.model_id, ask, spec)

    def _seen(self, call: Call, name: str) -> KnownModel | None:
        try:
            return call.adapter.lifecycle.find(name)
        except ServerUnavailable:
            return None

    def known(self) -> None:
        """The list never waits, and what it calls serving is so, unless something has just happened to Triton."""

        async def ask(call: Call) -> None:
            try:
                models = call.adapter.lifecycle.known()
            except ServerUnavailable:
                self._world.meet("a front must wait for the take-over")
                self.check(call, not call.adapter.lifecycle.registry.is_complete, "not known, though all is taken over")
                return
            names = [model.name for model in models]
            self.check(call, names == sorted(set(names)), f"known: {names}")
            used = [model for model in models if not model.is_going]  # an unload may be of an id that was never loaded
            wrong = [model for model in used if (model.model_id in self._world.front_ids) != model.name.startswith("name of ")]
            self.check(call, not wrong or bool(self._world.files.failed), f"named wrongly: {wrong}")

        self.call("known", "", ask)

    def _check_loaded(self, call: Call, spec: ModelSpec) -> None:
        """Triton serves what was asked for, unless it has died since."""
        times = self._world.begun[spec.model_id]
        began = min([call.began_at, *(at for at in times[-2:])])
        if self._triton.died_at >= began or not self.is_alone(call):
            return
        held = self._triton.models.get(spec.model_id)
        self.check(call, self._triton.serves(spec.model_id), f"loaded, but Triton has {held and held.state}")
        if held is None or not held.files:
            return
        what = said(held.files)
        name, _, rest = what.partition("/")
        path, _, number = rest.rpartition("#")
        self.check(call, (name, path) == (spec.storage_key, spec.path), f"loaded, but Triton serves {what}")
        endpoint = self._world.place(name)
        if path not in endpoint.models or not endpoint.was_well(began):
            return
        since = endpoint.models[path].since
        is_current = int(number) + 1 >= len(since) or since[int(number) + 1] >= began
        self.check(
            call, is_current, f"loaded, but Triton serves {what}, which was replaced at {since[min(int(number) + 1, len(since) - 1)]:.3f} s"
        )

    def unload(self, model_id: str) -> Call | None:
        async def ask(call: Call) -> None:
            await call.adapter.lifecycle.unload(model_id)
            if self._world.last_load[model_id] < call.number:
                self.check(call, not self._world.holds(model_id), f"unloaded, but held: {self._world.holds(model_id)}")

        return self.call("unload", model_id, ask)

    def predict(self, spec: ModelSpec) -> Call | None:
        async def ask(call: Call) -> None:
            size = await call.adapter.lifecycle.predict(spec)
            self.check(call, size > 8192, f"predicted {size}")

        return self.call("predict", spec.model_id, ask, spec)

    def size(self, model_id: str) -> None:
        async def ask(call: Call) -> None:
            size = await call.adapter.lifecycle.size_of(model_id)
            self.check(call, size > 8192, f"the size is {size}")

        self.call("size", model_id, ask)

    def status(self) -> None:
        async def ask(call: Call) -> None:
            state = await call.adapter.lifecycle.status()
            if state.is_ready:
                self._world.meet("READY")
                self._world.blind.discard(call.adapter.life)
                self._world.halved.discard(call.adapter.life)
                others = [other for other in self._world.calls if other.number > call.number and other.kind == "load"]
                held = {model_id: what for model_id in self._world.ids if (what := self._world.holds(model_id))}
                self.check(call, not held or bool(others), f"READY, but held: {held}")

        self.call("status", "", ask)

    def check(self, call: Call, is_kept: bool, rule: str) -> None:
        if not is_kept:
            self._world.problem(f"{call}: {rule}")

    def cancel_one(self) -> None:
        if self._world.calls:
            self._random.choice(self._world.calls[-6:]).cancel()

    async def cancel_in(self, ticks: int) -> None:
        for _ in range(ticks):
            await asyncio.sleep(0)
        waiting = [call for call in self._world.calls if call.kind == "load" and not call.is_over() and call.adapter.life.is_alive]
        if waiting:
            self._world.met["cancel near an answer"] += 1
            self._random.choice(waiting).cancel()
