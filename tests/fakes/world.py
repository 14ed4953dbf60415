"""
A world for the lifecycle: a store, a repository and a Triton in memory, behind the ports.

Every step of every port is a *point* with a name: `open`, `read`, `fetch`, `place`, `slot`, `load`,
`measure`, `unload`, `remove`, `release`, `ready`, `index`, `size`, `verify`, `purge`. A test can hold a
point, wait until somebody is there, let it go, or make it fail; or give a `chaos` that decides at
every point. Like the real Triton this one goes on with a load whose caller has gone, frees memory
some time after it was asked, survives the adapter, and loses everything when it restarts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapter.errors import ServerUnavailable, SourceNotFound
from adapter.model import Artifact, Layout, Listing, ModelSpec, ServerModel, SourceFile, Survey, owner_of
from adapter.ports import Neighbours
from adapter.waits import Waits


@dataclass
class World:
    """What exists outside the lifecycle, and a trace of what was done to it."""

    objects: dict[str, tuple[SourceFile, ...]] = field(default_factory=dict)
    """Model path → files, as a bucket would list them."""
    artifacts: set[Path] = field(default_factory=set)
    placed: dict[str, Layout] = field(default_factory=dict)
    memory: dict[str, str] = field(default_factory=dict)
    """Model id → Triton's state; absent when Triton holds nothing."""
    trace: list[str] = field(default_factory=list)
    load_seconds: float = 1.0
    unload_seconds: float = 1.2
    reported: int = 0
    problem: str | None = None
    violations: list[str] = field(default_factory=list)
    """Rules of the world that were broken: whoever breaks one may swallow the exception."""
    chaos: Callable[[str, str], Awaitable[None]] | None = None
    """Called at every point, with the point and the model id: may wait, may raise."""
    loading: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Loads in Triton, by model id."""
    freeing: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    restarted_at: float = -1.0
    """When Triton restarted last, by the clock of the loop."""
    _held: dict[str, asyncio.Event] = field(default_factory=dict)
    _reached: dict[str, asyncio.Event] = field(default_factory=dict)
    _failures: dict[str, list[BaseException]] = field(default_factory=dict)

    def add(self, path: str, *, size_bytes: int = 1_000_000, etag: str = "e1") -> None:
        """Put a model of one file at this path of the store, or replace it."""
        self.objects[path] = (SourceFile("model.onnx", size_bytes, etag),)

    def hold(self, point: str) -> None:
        """Whoever comes to this point waits there."""
        self._held[point] = asyncio.Event()
        self._reached[point] = asyncio.Event()

    async def until_held(self, point: str) -> None:
        """Wait until somebody waits at the point."""
        await self._reached[point].wait()

    def let_go(self, point: str) -> None:
        """Let everybody at the point go on, and do not hold it any more."""
        self._held.pop(point).set()

    def fail(self, point: str, error: BaseException, *, times: int = 1) -> None:
        """The next visits of the point fail."""
        self._failures.setdefault(point, []).extend([error] * times)

    async def visit(self, point: str, model_id: str = "") -> None:
        """One step of a port."""
        self.trace.append(f"{point} {model_id}".strip())
        if point in self._held:
            self._reached[point].set()
            await self._held[point].wait()
        if self._failures.get(point):
            raise self._failures[point].pop(0)
        if self.chaos is not None:
            await self.chaos(point, model_id)

    @staticmethod
    def of_bundle(model_id: str, names: Iterable[str]) -> list[str]:
        """Of the names, the model's own and its inner models'."""
        return [name for name in names if owner_of(name) == model_id]

    @property
    def is_empty(self) -> bool:
        """Nothing of any model is left anywhere."""
        return not self.artifacts and not self.placed and not self.memory

    def holds(self, model_id: str) -> list[str]:
        """What is held of one model."""
        found = [f"memory {self.memory[model_id]}"] if model_id in self.memory else []
        found += ["directory"] if model_id in self.placed else []
        return found + [f"artifact {root}" for root in sorted(self.artifacts) if root.parent.name == model_id]

    def require(self, is_kept: bool, rule: str) -> None:
        """Remember a broken rule, and fail the step that broke it."""
        if not is_kept:
            self.violations.append(rule)
            raise AssertionError(rule)

    # ---- Triton

    def begin_load(self, model_id: str) -> asyncio.Task[None]:
        """A load call arrives in Triton; nobody can cancel it there."""
        self.require(model_id in self.placed, f"{model_id} was loaded without a directory")
        self.require(model_id not in self.memory and model_id not in self.loading, f"{model_id} was loaded over itself")
        self.memory[model_id] = "LOADING"
        self.loading[model_id] = _retrieved(self._load(model_id))
        return self.loading[model_id]

    async def free(self, model_id: str) -> None:
        """An unload call arrives in Triton; returns when the memory is free."""
        if model_id in self.memory and model_id not in self.freeing:
            self.freeing[model_id] = _retrieved(self._free(model_id))
        if model_id in self.freeing:
            await asyncio.wait({self.freeing[model_id]})

    def restart_triton(self) -> None:
        """Triton dies and is back at once, with nothing in memory."""
        self.restarted_at = asyncio.get_running_loop().time()
        for task in (*self.loading.values(), *self.freeing.values()):
            task.cancel()
        self.loading.clear()
        self.freeing.clear()
        self.memory.clear()

    async def _load(self, model_id: str) -> None:
        try:
            await self.visit("load", model_id)
            await asyncio.sleep(self.load_seconds)
        except Exception:
            del self.loading[model_id], self.memory[model_id]
            raise
        del self.loading[model_id]
        self.memory[model_id] = "READY"

    async def _free(self, model_id: str) -> None:
        self.memory[model_id] = "UNLOADING"
        await asyncio.sleep(self.unload_seconds)
        del self.freeing[model_id], self.memory[model_id]


def _retrieved(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task whose failure nobody needs to ask for."""
    task = asyncio.create_task(work)
    task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
    return task


@dataclass
class Process:
    """One life of the adapter. When it is dead its ports do nothing any more."""

    is_alive: bool = True


class ProcessDied(Exception):
    """What the remains of a dead adapter meet at every port."""


@dataclass
class _Port:
    world: World
    process: Process = field(default_factory=Process)

    async def visit(self, point: str, model_id: str = "") -> None:
        """One step; a process that dies meanwhile does not finish it."""
        self.require_life()
        await self.world.visit(point, model_id)
        self.require_life()

    def require_life(self) -> None:
        """Raise ProcessDied in what is left of a dead adapter."""
        if not self.process.is_alive:
            raise ProcessDied


@dataclass
class FakeStoredModel:
    port: _Port
    model_id: str
    listing: Listing
    waits: Waits

    @property
    def world(self) -> World:
        return self.port.world

    async def read(self, file: SourceFile) -> bytes:
        await self.port.visit("read")
        return b""

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        with self.waits.on(f"the files of {self.listing.origin}"):
            await self.port.visit("fetch")
        root = Path(f"/artifacts/{self.model_id}/{len(self.world.trace)}")
        self.world.artifacts.add(root)
        return Artifact(root, is_ours=True)


@dataclass
class FakeStore(_Port):
    async def open(self, spec: ModelSpec, waits: Waits) -> FakeStoredModel:
        with waits.on(f"the listing of memory://{spec.path}"):
            await self.visit("open", spec.model_id)
        return FakeStoredModel(self, spec.model_id, self._listing(spec), waits)

    async def survey(self, spec: ModelSpec, timeout_seconds: float) -> Survey:
        await self.visit("survey", spec.model_id)
        listing = self._listing(spec)
        return Survey(listing.size_bytes, listing)

    async def release(self, artifact: Artifact) -> None:
        self.require_life()
        self.world.artifacts.remove(artifact.root)
        await self.visit("release")

    def _listing(self, spec: ModelSpec) -> Listing:
        if spec.path not in self.world.objects:
            raise SourceNotFound(f"nothing at memory://{spec.path}")
        return Listing(f"memory://{spec.path}", "model.onnx", True, self.world.objects[spec.path])


@dataclass
class FakeRepository(_Port):
    async def place(self, model_id: str, layout: Layout, artifact: Artifact) -> None:
        await self.visit("place", model_id)
        self.world.require(model_id not in self.world.memory, f"the directory of {model_id} was replaced while Triton held the model")
        self.world.require(artifact.root in self.world.artifacts, f"{model_id} was placed from files that are gone")
        self.world.placed[model_id] = layout

    async def remove(self, model_id: str) -> None:
        await self.visit("remove", model_id)
        held = self.world.of_bundle(model_id, self.world.memory)
        self.world.require(not held, f"the directory of {model_id} was removed while Triton held the model")
        for name in self.world.of_bundle(model_id, self.world.placed):
            self.world.placed.pop(name)

    async def size_bytes(self, model_id: str) -> int:
        await self.visit("size", model_id)
        return sum(self.world.placed[name].size_bytes for name in self.world.of_bundle(model_id, self.world.placed))


class FakeServer(_Port):
    """Triton as the port shows it. Loads that were sent go on without their caller."""

    def __init__(self, world: World, process: Process | None = None, *, slots: int = 2) -> None:
        super().__init__(world, process or Process())
        self._slots = asyncio.Semaphore(slots)
        self._sent: set[str] = set()

    @property
    def problem(self) -> str | None:
        return self.world.problem

    async def load(self, model_id: str, on_sent: Callable[[], None]) -> None:
        await self.visit("slot", model_id)
        await self._slots.acquire()
        try:
            self.require_life()
            on_sent()
            sent = self.world.begin_load(model_id)
        except BaseException:
            self._slots.release()
            raise
        self._sent.add(model_id)
        sent.add_done_callback(lambda _: self._answered(model_id))
        try:
            await asyncio.shield(sent)
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            if sent.cancelled() and caller is not None and not caller.cancelling():
                raise ServerUnavailable("Triton died while it was loading the model") from None
            raise

    def queue(self) -> str | None:
        return f"Triton is loading {', '.join(sorted(self._sent))}" if self._slots.locked() else None

    async def unload(self, model_id: str) -> None:
        while sent := self.world.loading.get(model_id):
            await asyncio.wait({sent})
        await self.visit("unload", model_id)
        await asyncio.gather(*(self.world.free(name) for name in self.world.of_bundle(model_id, self.world.memory)))

    def obstacle(self, model_id: str) -> str:
        return f"Triton has {model_id} as {self.world.memory.get(model_id)}"

    async def is_ready(self, model_id: str) -> bool:
        await self.visit("ready", model_id)
        return self.world.memory.get(model_id) == "READY"

    async def index(self) -> list[ServerModel]:
        await self.visit("index")
        return [ServerModel(name, "1", self.world.memory.get(name, ""), "") for name in self.world.placed]

    async def reported_bytes(self, model_id: str) -> int:
        await self.visit("measure", model_id)
        return self.world.reported

    async def verify(self) -> str:
        await self.visit("verify")
        return "2.51.0"

    async def purge(self) -> None:
        await self.visit("purge")
        while held := {*self.world.loading, *self.world.memory}:
            for model_id in sorted(held):
                while waited := self.world.loading.get(model_id) or self.world.freeing.get(model_id):
                    await asyncio.wait({waited})
                await self.visit("purge", model_id)
                self.world.memory.pop(model_id, None)
        self.require_life()
        self.world.placed.clear()

    def _answered(self, model_id: str) -> None:
        self._sent.remove(model_id)
        self._slots.release()


def neighbours(world: World, process: Process | None = None, *, slots: int = 2) -> Neighbours:
    """What one life of the adapter meets of this world."""
    process = process or Process()
    return Neighbours(FakeStore(world, process), FakeRepository(world, process), FakeServer(world, process, slots=slots))
