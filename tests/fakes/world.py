"""
A world for the lifecycle: a store, a repository and a Triton in memory, behind the ports.

Every step of every port is a *point* with a name: `open`, `read`, `fetch`, `place`, `slot`, `load`,
`measure`, `unload`, `remove`, `release`, `ready`, `index`, `verify`, `purge`. A test can hold a
point, wait until somebody is there, let it go, or make it fail. Like the real Triton this one goes
on with a load whose caller has gone, and frees memory some time after it was asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from adapter.errors import SourceNotFound
from adapter.model import Artifact, Layout, Listing, ModelSpec, ServerModel, SourceFile, Survey, owner_of


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

    @staticmethod
    def of_bundle(model_id: str, names: Iterable[str]) -> list[str]:
        """Those of the names that are the model's own or its inner models'."""
        return [name for name in names if owner_of(name) == model_id]

    @property
    def is_empty(self) -> bool:
        """Nothing of any model is left anywhere."""
        return not self.artifacts and not self.placed and not self.memory


@dataclass
class FakeStoredModel:
    world: World
    listing: Listing

    async def read(self, file: SourceFile) -> bytes:
        await self.world.visit("read")
        return b""

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        await self.world.visit("fetch")
        root = Path(f"/artifacts/{len(self.world.trace)}")
        self.world.artifacts.add(root)
        return Artifact(root, is_ours=True)


@dataclass
class FakeStore:
    world: World

    async def open(self, spec: ModelSpec) -> FakeStoredModel:
        await self.world.visit("open", spec.model_id)
        return FakeStoredModel(self.world, self._listing(spec))

    async def survey(self, spec: ModelSpec, timeout_seconds: float) -> Survey:
        await self.world.visit("survey", spec.model_id)
        listing = self._listing(spec)
        return Survey(listing.size_bytes, listing)

    async def release(self, artifact: Artifact) -> None:
        await self.world.visit("release")
        self.world.artifacts.remove(artifact.root)

    def _listing(self, spec: ModelSpec) -> Listing:
        if spec.path not in self.world.objects:
            raise SourceNotFound(f"nothing at memory://{spec.path}")
        return Listing(f"memory://{spec.path}", "m", True, self.world.objects[spec.path])


@dataclass
class FakeRepository:
    world: World

    def wanted(self, listing: Listing) -> tuple[SourceFile, ...]:
        return (listing.schema,) if listing.schema else ()

    def plan(self, spec: ModelSpec, listing: Listing, contents: dict[SourceFile, bytes]) -> Layout:
        return Layout({f"1/{file.path}": file for file in listing.files})

    async def place(self, model_id: str, layout: Layout, artifact: Artifact) -> None:
        await self.world.visit("place", model_id)
        self.world.placed[model_id] = layout

    async def remove(self, model_id: str) -> None:
        await self.world.visit("remove", model_id)
        assert not self.world.of_bundle(model_id, self.world.memory), "a directory was removed while Triton held the model"
        for name in self.world.of_bundle(model_id, self.world.placed):
            self.world.placed.pop(name)

    async def clear(self) -> None:
        self.world.placed.clear()

    def size_bytes(self, model_id: str) -> int:
        return sum(self.world.placed[name].size_bytes for name in self.world.of_bundle(model_id, self.world.placed))


class FakeServer:
    """Triton as the port shows it. Loads that were sent go on without their caller."""

    def __init__(self, world: World, *, slots: int = 2) -> None:
        self.world = world
        self._slots = asyncio.Semaphore(slots)
        self._sent: dict[str, asyncio.Task[None]] = {}

    @property
    def problem(self) -> str | None:
        return self.world.problem

    @asynccontextmanager
    async def loading_slot(self) -> AsyncIterator[None]:
        await self.world.visit("slot")
        async with self._slots:
            yield

    async def load(self, model_id: str) -> None:
        self._sent[model_id] = asyncio.create_task(self._load(model_id))
        await asyncio.shield(self._sent[model_id])

    async def _load(self, model_id: str) -> None:
        assert model_id in self.world.placed
        assert model_id not in self.world.memory, "a model was loaded over itself"
        self.world.memory[model_id] = "LOADING"
        try:
            await self.world.visit("load", model_id)
            await asyncio.sleep(self.world.load_seconds)
        except Exception:
            self.world.memory.pop(model_id)
            raise
        self.world.memory[model_id] = "READY"

    async def unload(self, model_id: str) -> None:
        if sent := self._sent.pop(model_id, None):
            await asyncio.wait({sent})
        await self.world.visit("unload", model_id)
        if names := self.world.of_bundle(model_id, self.world.memory):
            self.world.memory |= dict.fromkeys(names, "UNLOADING")
            await asyncio.sleep(self.world.unload_seconds)
            for name in names:
                self.world.memory.pop(name)

    async def is_ready(self, model_id: str) -> bool:
        await self.world.visit("ready", model_id)
        return self.world.memory.get(model_id) == "READY"

    async def index(self) -> list[ServerModel]:
        await self.world.visit("index")
        return [ServerModel(name, "1", self.world.memory.get(name, ""), "") for name in self.world.placed]

    async def reported_bytes(self, model_id: str) -> int:
        await self.world.visit("measure", model_id)
        return self.world.reported

    async def verify(self) -> str:
        await self.world.visit("verify")
        return "2.51.0"

    async def purge(self) -> None:
        await self.world.visit("purge")
        self.world.memory.clear()
        self.world.placed.clear()
