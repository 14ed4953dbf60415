"""A runtime in this process that does as it is told, and lies when it is told to."""

from __future__ import annotations

import asyncio
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tritonclient.grpc import service_pb2 as v2

from adapter._pb import model_runtime_pb2 as spi
from tests.mesh.mesh import Mesh
from tests.mesh.runtime import CallError, Model
from tests.mesh.times import Times
from tests.mesh.watch import Watch

MIB = 1 << 20
REQUEST = bytes(v2.ModelInferRequest(model_name="somebody").SerializeToString())


@dataclass
class Script:
    """What becomes of one model."""

    size_bytes: int = 4 * MIB
    predicted: int | CallError = 4 * MIB
    told: int = 4 * MIB
    """By the load's answer; 0: `modelSize` has it."""
    predict_seconds: float = 0.0
    load_seconds: float = 0.0
    load_fails: CallError | None = None
    unload_seconds: float = 0.0
    unload_fails: int = 0
    """So many times."""
    infer_seconds: float = 0.0
    infer_fails: list[CallError] = field(default_factory=list)
    """The next answers to inference."""
    stays: bool = False
    """An unload is answered, and the model stays: a lie."""


@dataclass
class ScriptedRuntime:
    """Adapter and Triton in one, honest unless a script says otherwise."""

    now: Any
    scripts: dict[str, Script] = field(default_factory=dict)
    statuses: list[Any] = field(default_factory=list)
    """What the next questions for the status get: a CallError, or a status; then READY."""
    numbers: dict[str, int] = field(default_factory=dict)
    """Announced, instead of the usual ones."""
    holding: dict[str, str] = field(default_factory=dict)
    """Triton's index."""
    journal: list[tuple[float, str, str]] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    deadlines: list[float] = field(default_factory=list)
    """Of the questions for the status."""
    loading: int = 0
    most_loading: int = 0
    is_away: bool = False

    def script(self, model_id: str) -> Script:
        return self.scripts.setdefault(model_id, Script())

    def times_of(self, call: str, model_id: str) -> list[float]:
        """When it came, for this model."""
        return [round(at, 3) for at, what, who in self.journal if (what, who) == (call, model_id)]

    def _note(self, call: str, model_id: str = "") -> None:
        self.journal.append((self.now(), call, model_id))
        self.calls[call] += 1

    async def reconnect(self) -> None:
        self._note("connect")

    async def status(self, seconds: float) -> Any:
        self._note("status")
        self.deadlines.append(round(seconds, 3))
        found = self.statuses.pop(0) if self.statuses else spi.RuntimeStatusResponse.READY
        if isinstance(found, CallError):
            raise found
        if found == spi.RuntimeStatusResponse.READY:
            self.holding.clear()
        answer = spi.RuntimeStatusResponse(
            status=found,
            capacityInBytes=100 * MIB,
            defaultModelSizeInBytes=MIB,
            maxLoadingConcurrency=2,
            modelLoadingTimeoutMs=30_000,
        )
        for name, number in self.numbers.items():
            setattr(answer, name, number)
        return answer

    async def predict(self, model: Model, seconds: float) -> int:
        self._note("predict", model.model_id)
        script = self.script(model.model_id)
        if script.predict_seconds > seconds:
            await asyncio.sleep(seconds)
            raise CallError("DEADLINE_EXCEEDED", "")
        await asyncio.sleep(script.predict_seconds)
        if isinstance(script.predicted, CallError):
            raise script.predicted
        return script.predicted

    async def load(self, model: Model) -> int:
        name = model.model_id
        self._note("load", name)
        script = self.script(name)
        self.holding[name] = "LOADING"
        self.loading += 1
        self.most_loading = max(self.most_loading, self.loading)
        try:
            await asyncio.sleep(script.load_seconds)
        except asyncio.CancelledError:
            self._note("load cancelled", name)
            raise
        finally:
            self.loading -= 1
        if script.load_fails:
            del self.holding[name]
            raise script.load_fails
        self.holding[name] = "READY"
        return script.told

    async def size(self, model_id: str, seconds: float) -> int:
        self._note("size", model_id)
        return self.script(model_id).size_bytes

    async def unload(self, model_id: str) -> None:
        self._note("unload", model_id)
        script = self.script(model_id)
        await asyncio.sleep(script.unload_seconds)
        if script.unload_fails:
            script.unload_fails -= 1
            raise CallError("UNAVAILABLE", "not now")
        if not script.stays:
            self.holding.pop(model_id, None)

    async def call(self, method: str, request: bytes, seconds: float) -> bytes:
        name = v2.ModelInferRequest.FromString(request).model_name
        self._note(method, name)
        script = self.script(name)
        if script.infer_fails:
            raise script.infer_fails.pop(0)
        if self.holding.get(name) != "READY":
            raise CallError("NOT_FOUND", f"Request for unknown model: '{name}' is not found")
        await asyncio.sleep(script.infer_seconds)
        return bytes(v2.ModelInferResponse(model_name=name).SerializeToString())

    async def index(self) -> dict[str, str]:
        if self.is_away:
            raise CallError("UNAVAILABLE", "connection refused")
        return dict(self.holding)


def a_mesh(runtime: ScriptedRuntime, *names: str, times: Times | None = None, **more: Any) -> Mesh:
    """With these models registered, in the time of the running event loop; every fault is told, and none happens."""
    mesh = Mesh(runtime, times=times, watch=Watch(now=runtime.now, knows_faults=True), **more)
    for name in names:
        mesh.register(Model(name, "mt:python", f"models/{name}", "{}"))
    return mesh


def a_runtime(**scripts: Script) -> ScriptedRuntime:
    """In the time of the running event loop."""
    return ScriptedRuntime(asyncio.get_running_loop().time, dict(scripts))
