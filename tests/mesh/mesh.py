"""
One ModelMesh process: its start, its cache, its clients' requests, its sudden end.

`async with Mesh(runtime) as mesh: await mesh.start(); mesh.register(…); await mesh.infer(…)`.
"""

from __future__ import annotations

import asyncio
from typing import Any

from adapter._pb import model_runtime_pb2 as spi
from tests.mesh.accounts import Accounts, Entry, Phase
from tests.mesh.announced import Announced, FatalError
from tests.mesh.ground import REMOVED, Copy, Ground, LoadError, State
from tests.mesh.inference import Inference
from tests.mesh.loads import Loads
from tests.mesh.runtime import CallError, GrpcRuntime, Model
from tests.mesh.times import Times
from tests.mesh.unloads import Unloads
from tests.mesh.watch import Watch

UNLOAD_BOUND_SECONDS = 180.0
"""ModelMesh's loads wait so long for unloads, and no longer."""
REGISTERED_AGE_SECONDS = 3600.0
"""A model that was only registered counts as so old."""
REQUEST_SECONDS = 120.0


class Mesh:
    """What is registered outlives a restart of the process; everything else does not."""

    def __init__(
        self,
        runtime: GrpcRuntime,
        *,
        times: Times | None = None,
        watch: Watch | None = None,
        unload_bound_seconds: float = UNLOAD_BOUND_SECONDS,
    ) -> None:
        self.runtime = runtime
        self.times = times or Times()
        self.watch = watch or Watch()
        self.models: dict[str, Model] = {}
        self.epoch = 0
        """Starts so far."""
        self._bound = unload_bound_seconds
        self._ground: Ground | None = None

    async def __aenter__(self) -> Mesh:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.crash()

    # ---- start and end

    async def start(self) -> Announced:
        """
        Ask for the runtime's status until READY; then everything begins with an empty view.

        Raises:
            FatalError: what ends a ModelMesh process.
        """
        await self.crash()
        await self.runtime.reconnect()
        announced = Announced.of(await self._ready())
        accounts = Accounts(announced.capacity_units, announced.reserve_units)
        ground = Ground(self.runtime, announced, self.times, self.watch, accounts, self._evicted)
        self._unloads = Unloads(ground, self._bound)
        self._loads = Loads(ground, self._unloads)
        self._inference = Inference(ground, copy_of=self._copy_of, lose=self._lose)
        self._ground = ground
        self.epoch += 1
        ground.spawn(self._unloads.tick())
        ground.spawn(self._janitor(ground))
        self.watch.answered.set()
        self.watch.note("", f"READY: {announced.usable_units} of {announced.capacity_units} units for models")
        return announced

    async def crash(self) -> None:
        """As `kill -9`: calls end, nothing is unloaded, the view is gone."""
        ground, self._ground = self._ground, None
        if ground is None:
            return
        self.watch.note("", "ModelMesh dies")
        tasks = list(ground.tasks)
        for task in tasks:
            task.cancel()
        for copy in ground.copies.values():
            copy.conclude("ModelMesh has died")
        await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def ground(self) -> Ground | None:
        """Of the process that lives; None between two of them."""
        return self._ground

    async def _ready(self) -> Any:
        end, last = self.watch.now() + self.times.start, "not asked"
        while (left := end - self.watch.now()) > 0:
            began = self.watch.now()
            try:
                answer = await self.runtime.status(left)
            except CallError as error:
                self.watch.figures.failed("status", str(error))
                if error.code == "DEADLINE_EXCEEDED":
                    raise FatalError(f"runtimeStatus: {error}") from None
                last = str(error)
                self.watch.note("", f"runtimeStatus failed: {error}")
            else:
                self.watch.figures.took("status", self.watch.now() - began)
                if answer.status == spi.RuntimeStatusResponse.READY:
                    return answer
                if answer.status != spi.RuntimeStatusResponse.STARTING:
                    raise FatalError(f"runtimeStatus says {answer.status}, which is neither STARTING nor READY")
                last = "STARTING"
            await asyncio.sleep(self.times.poll)
        raise FatalError(f"the runtime was not READY within {self.times.start:g} s; its last answer: {last}")

    # ---- what clients do

    def register(self, model: Model) -> None:
        """Known from now on, loaded by its first request."""
        self.models[model.model_id] = model

    def unregister(self, model_id: str) -> None:
        """Known no more; a copy is removed."""
        self.models.pop(model_id, None)
        if self._ground and (copy := self._ground.copies.get(model_id)):
            self._remove(copy)

    async def infer(self, model_id: str, request: bytes, *, method: str = "ModelInfer", seconds: float = REQUEST_SECONDS) -> bytes:
        """
        A V2 request as bytes; loads the model if need be.

        Raises:
            LoadError: the model cannot be loaded now.
            InferenceError: the runtime's error, or no answer in time.
        """
        if self._ground is None:
            raise LoadError("ModelMesh is not running")
        return await self._inference.call(model_id, method, request, seconds)

    async def ensure_loaded(self, model_id: str, *, used: bool = True) -> None:
        """Load without a request; not `used`: as a registration with `loadNow`, which counts as an hour old. Raises LoadError."""
        await self._copy_of(model_id, age=0.0 if used else REGISTERED_AGE_SECONDS).arrival()

    # ---- what it believes

    def loaded(self) -> dict[str, Copy]:
        """The models that a client would be told are LOADED."""
        copies = self._ground.copies if self._ground else {}
        return {model_id: copy for model_id, copy in copies.items() if copy.state is State.ACTIVE}

    def accounted(self) -> set[str]:
        """The models that may hold memory: sent, loaded, being unloaded, or not to be unloaded."""
        if self._ground is None:
            return set()
        entries = self._ground.accounts.entries
        return {model_id for model_id, entry in entries.items() if entry.phase is Phase.HELD} | set(self._unloads.pending)

    # ---- copies

    def _copy_of(self, model_id: str, age: float = 0.0) -> Copy:
        ground = self._ground
        if ground is None or model_id not in self.models:
            raise LoadError("ModelMesh is not running" if ground is None else f"NOT_FOUND: model {model_id} is not registered")
        used = ground.now() - age
        if copy := ground.copies.get(model_id):
            ground.accounts.touch(model_id, used)
            return copy
        if model_id in self._loads.branded:
            raise LoadError("its failed load had a weight of one unit: it is never tried again")
        copy = Copy(self.models[model_id], asyncio.get_running_loop().create_future())
        ground.copies[model_id] = copy
        self._evicted(ground.accounts.insert(model_id, used))
        if copy.state is State.REMOVED:
            raise LoadError("Entry too old for cache")
        copy.task = ground.spawn(self._loads.run(copy))
        return copy

    def _evicted(self, entries: list[Entry]) -> None:
        for entry in entries:
            self.watch.figures.count("evictions")
            self.watch.note(entry.model_id, f"evicted with {entry.weight} units")
            self._leave(entry, self.times.after_eviction)

    def _remove(self, copy: Copy) -> None:
        assert self._ground is not None
        self.watch.note(copy.model_id, "removed")
        self._leave(self._ground.accounts.remove(copy.model_id), self.times.after_removal)

    def _lose(self, copy: Copy) -> None:
        """The clean-up unload follows at once, and the next load waits for it."""
        copy.is_lost = True
        if self._ground and self._ground.copies.get(copy.model_id) is copy:
            self._leave(self._ground.accounts.remove(copy.model_id), 0.0)

    def _leave(self, entry: Entry, delay: float) -> None:
        """A copy whose entry has left the cache: what was sent is unloaded."""
        assert self._ground is not None
        copy = self._ground.copies.pop(entry.model_id)
        state, copy.state = copy.state, State.REMOVED
        copy.conclude(REMOVED)
        if state is State.LOADING:
            self._unloads.begin(copy, entry.weight, delay)
        elif state is State.ACTIVE:
            self._unloads.begin(copy, entry.weight, self.times.idle if delay else 0.0, waits_for_requests=bool(delay))
        if copy.task and copy.task is not asyncio.current_task():
            copy.task.cancel()
        if state in (State.NEW, State.QUEUED, State.WAITING, State.FAILED):
            self._ground.spawn(self._ground.ring())

    async def _janitor(self, ground: Ground) -> None:
        """Failures that have expired are forgotten: the next request tries again."""
        while True:
            await asyncio.sleep(self.times.janitor)
            now = ground.now()
            for copy in [copy for copy in ground.copies.values() if copy.state is State.FAILED]:
                is_hot = now - ground.accounts.entries[copy.model_id].last_used < self.times.hot
                if now - copy.failed_at > (self.times.hot_expiry if is_hot else self.times.expiry):
                    self._remove(copy)
