"""
A world for the lifecycle: a store, a repository and a Triton in memory, behind the ports.

Every step of every port is a *point* with a name: `open`, `read`, `fetch`, `place`, `slot`, `load`,
`measure`, `unload`, `remove`, `release`, `ready`, `index`, `inventory`, `identities`, `verify`, `purge`. A test can hold a
point, wait until a task is there, let it go, or make it fail; or give a `chaos` that decides at
every point. Like the real Triton this one goes on with a load whose caller has gone, frees memory
some time after it was asked, survives the adapter, and loses everything when it restarts. It can be
away for a time, and die over a content that is deadly.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from adapter.errors import ServerDied, SourceNotFound
from adapter.model import Artifact, Layout, Listing, ModelSpec, Overrides, Placed, Rows, ServerModel, SourceFile, Survey, by_owner, owner_of
from adapter.ports import Ports, Wanted
from adapter.records import Crashes, Digests, Entry, Needed, Record, Sized
from adapter.volume.trees import Ends
from adapter.waits import Waits
from tests.fakes.memory import UntoldMemory


@dataclass
class World:
    """What exists outside the lifecycle, and a trace of what was done to it."""

    objects: dict[str, tuple[SourceFile, ...]] = field(default_factory=dict)
    """Model path → files, as a bucket would list them."""
    contents: dict[str, bytes] = field(default_factory=dict)
    """ETag → what is read of a small file; others are empty."""
    surveys: dict[str, Survey] = field(default_factory=dict)
    """Model path → what a survey tells, where that is not all that there is."""
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
    """Rules of the world that were broken: the code that breaks one may swallow the exception."""
    chaos: Callable[[str, str], Awaitable[None]] | None = None
    """Called at every point, with the point and the model id: may wait, may raise."""
    loading: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    """Loads in Triton, by model id."""
    freeing: dict[str, asyncio.Task[None]] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    """What the journal's file holds."""
    crashes: dict[str, Crashes] = field(default_factory=dict)
    sizes: dict[str, Sized] = field(default_factory=dict)
    needed: dict[str, Needed] = field(default_factory=dict)
    deadly: set[str] = field(default_factory=set)
    """ETags: Triton dies when it has loaded such a file."""
    identities: dict[str, str] = field(default_factory=dict)
    """Model id → identity of its placed directory."""
    _asked: set[str] = field(default_factory=set)
    """What this Triton was asked for since it started: the index shows it, with or without memory."""
    _answers: asyncio.Event = field(default_factory=asyncio.Event)
    _listeners: list[asyncio.Event] = field(default_factory=list)
    _held: dict[str, asyncio.Event] = field(default_factory=dict)
    _reached: dict[str, asyncio.Event] = field(default_factory=dict)
    _failures: dict[str, list[BaseException]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._answers.set()

    def add(self, path: str, *, size_bytes: int = 1_000_000, etag: str = "e1") -> None:
        """Put a model of one file at this path of the store, or replace it."""
        self.objects[path] = (SourceFile("model.onnx", size_bytes, etag),)

    def hold(self, point: str) -> None:
        """A task that comes to this point waits there."""
        self._held[point] = asyncio.Event()
        self._reached[point] = asyncio.Event()

    async def until_held(self, point: str) -> None:
        """Wait until a task waits at the point."""
        await self._reached[point].wait()

    def let_go(self, point: str) -> None:
        """Let everybody at the point go on, and do not hold it any more."""
        self._held.pop(point).set()

    def fail(self, point: str, error: BaseException, *, times: int = 1) -> None:
        """The next visits of the point fail."""
        self._failures.setdefault(point, []).extend([error] * times)

    def heal(self, point: str) -> None:
        """The next visits of the point succeed."""
        self._failures.pop(point, None)

    async def visit(self, point: str, model_id: str = "", *, is_traced: bool = True) -> None:
        """One step of a port."""
        if is_traced:
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
        return [name for name in names if name.startswith(model_id) and owner_of(name) == model_id]

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
        """A load call arrives in Triton; it cannot be cancelled there."""
        self.require(model_id in self.placed, f"{model_id} was loaded without a directory")
        self.require(model_id not in self.memory and model_id not in self.loading, f"{model_id} was loaded over itself")
        self.require(self.answers, f"{model_id} was sent to a Triton that is away")
        self.memory[model_id] = "LOADING"
        self._asked.add(model_id)
        self.loading[model_id] = _retrieved(self._load(model_id))
        return self.loading[model_id]

    async def free(self, model_id: str) -> None:
        """An unload call arrives in Triton; returns when the memory is free."""
        if model_id in self.memory and model_id not in self.freeing:
            self.freeing[model_id] = _retrieved(self._free(model_id))
        if model_id in self.freeing:
            await asyncio.wait({self.freeing[model_id]})

    @property
    def answers(self) -> bool:
        """Whether Triton is there."""
        return self._answers.is_set()

    async def until_answers(self) -> None:
        """Wait for a Triton that is away."""
        while not self._answers.is_set():
            await self._answers.wait()

    def state_of(self, name: str) -> str:
        """As the index shows a model whose directory exists."""
        return self.memory.get(name) or ("UNAVAILABLE" if name in self._asked else "")

    def listen(self) -> asyncio.Event:
        """Is set by every return of Triton from now on."""
        self._listeners.append(asyncio.Event())
        return self._listeners[-1]

    def kill_triton(self) -> None:
        """Triton dies, with all that it had in memory, and stays away."""
        self._answers.clear()
        for task in (*self.loading.values(), *self.freeing.values()):
            task.cancel()
        for state in (self.loading, self.freeing, self.memory, self._asked):
            state.clear()

    def start_triton(self) -> None:
        """Triton answers again."""
        if self.answers:
            return
        self._answers.set()
        for listener in self._listeners:
            listener.set()

    def restart_triton(self) -> None:
        """Triton dies and is back at once, with nothing in memory."""
        self.kill_triton()
        self.start_triton()

    async def _load(self, model_id: str) -> None:
        try:
            await self.visit("load", model_id)
            await asyncio.sleep(self.load_seconds)
        except Exception:
            del self.loading[model_id], self.memory[model_id]
            raise
        if self.deadly & {file.etag for file in self.placed[model_id].files}:
            self.kill_triton()
            asyncio.get_running_loop().call_soon(self.start_triton)
            await asyncio.sleep(0)
        del self.loading[model_id]
        self.memory[model_id] = "READY"

    async def _free(self, model_id: str) -> None:
        self.memory[model_id] = "UNLOADING"
        await asyncio.sleep(self.unload_seconds)
        del self.freeing[model_id], self.memory[model_id]


def _retrieved(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """A task whose failure does not need to be asked for."""
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
        return self.world.contents.get(file.etag, b"")

    async def fetch(self, files: tuple[SourceFile, ...]) -> Artifact:
        with self.waits.on(f"the files of {self.listing.origin}"):
            await self.port.visit("fetch")
        root = Path(f"/artifacts/{self.model_id}/{len(self.world.trace)}")
        self.world.artifacts.add(root)
        return Artifact(root, is_ours=True, key=str(root))

    def close(self) -> None:
        """Nothing is held."""

    async def ends(self, artifact: Artifact, files: tuple[SourceFile, ...]) -> dict[SourceFile, Ends]:
        await self.port.visit("ends")
        return dict.fromkeys(files, Ends(b"", b"", 0))


@dataclass
class FakeStore(_Port):
    async def open(self, spec: ModelSpec, waits: Waits) -> FakeStoredModel:
        with waits.on(f"the listing of memory://{spec.path}"):
            await self.visit("open", spec.model_id)
        return FakeStoredModel(self, spec.model_id, self._listing(spec), waits)

    async def survey(self, spec: ModelSpec, timeout_seconds: float, wanted: Wanted) -> Survey:
        await self.visit("survey", spec.model_id)
        if spec.path in self.world.surveys:
            return self.world.surveys[spec.path]
        listing = self._listing(spec)
        return Survey(listing.size_bytes, listing, {file: self.world.contents.get(file.etag, b"") for file in wanted(listing)})

    async def reclaim(self, key: str) -> Artifact | None:
        self.require_life()
        root = Path(key)
        return Artifact(root, is_ours=True, key=key) if root in self.world.artifacts else None

    async def release(self, artifact: Artifact) -> None:
        self.require_life()
        self.world.artifacts.remove(artifact.root)
        await self.visit("release")

    def _listing(self, spec: ModelSpec) -> Listing:
        if spec.path not in self.world.objects:
            raise SourceNotFound(f"nothing at memory://{spec.path}")
        files = self.world.objects[spec.path]
        return Listing(f"memory://{spec.path}", "model.onnx", len(files) == 1, files)


@dataclass
class FakeRepository(_Port):
    folder = Path("/models/repository")
    problem = None

    def is_of_others(self, name: str) -> bool:
        return False

    async def claim(self, model_id: str) -> None:
        """Everything is the adapter's."""

    async def place(self, model_id: str, layout: Layout, artifact: Artifact) -> str:
        await self.visit("place", model_id)
        self.world.require(model_id not in self.world.memory, f"the directory of {model_id} was replaced while Triton held the model")
        self.world.require(artifact.root in self.world.artifacts, f"{model_id} was placed from files that are gone")
        self.world.placed[model_id] = layout
        self.world.identities[model_id] = f"{model_id}-{len(self.world.trace)}"
        return self.world.identities[model_id]

    async def remove(self, model_id: str) -> None:
        await self.visit("remove", model_id)
        held = self.world.of_bundle(model_id, self.world.memory)
        self.world.require(not held, f"the directory of {model_id} was removed while Triton held the model")
        for name in self.world.of_bundle(model_id, self.world.placed):
            self.world.placed.pop(name)

    async def sweep(self) -> None:
        await self.visit("sweep")

    async def inventory(self) -> dict[str, Placed]:
        await self.visit("inventory")
        sizes = Counter[str]()
        for name, layout in self.world.placed.items():
            sizes[owner_of(name)] += layout.size_bytes
        return {
            model_id: Placed(self.world.identities.get(model_id, ""), sizes[model_id])
            for model_id in self.world.placed
            if owner_of(model_id) == model_id
        }

    async def identities(self, model_ids: Collection[str]) -> dict[str, str]:
        await self.visit("identities")
        return {model_id: self.world.identities.get(model_id, "") for model_id in model_ids if model_id in self.world.placed}


class FakeServer(_Port):
    """Triton as the port shows it. Loads that were sent go on without their caller."""

    def __init__(self, world: World, process: Process | None = None, *, slots: int = 2) -> None:
        super().__init__(world, process or Process())
        self._slots = asyncio.Semaphore(slots)
        self._sent: set[str] = set()
        self._returns = world.listen()

    @property
    def problem(self) -> str | None:
        return self.world.problem or (None if self.world.answers else "Triton does not answer")

    notice = None

    async def returned(self) -> bool:
        await self._returns.wait()
        self._returns.clear()
        return True

    def confirm_restart(self) -> None:
        """Counts nothing here."""

    async def load(self, model_id: str, on_sent: Callable[[], Awaitable[None]], *, has_limit: bool = False) -> None:
        await self.visit("slot", model_id)
        await self._slots.acquire()
        try:
            await self.world.until_answers()
            self.require_life()
            await on_sent()
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
                raise ServerDied("Triton died while it was loading the model") from None
            raise
        await self.world.until_answers()

    def queue(self) -> str | None:
        return f"Triton is loading {', '.join(sorted(self._sent))}" if self._slots.locked() else None

    async def load_other(self, name: str, overrides: Overrides) -> None:
        """There are none here."""

    async def unload(self, model_id: str, *, has_dependents: bool | None = None) -> None:
        while sent := self.world.loading.get(model_id):
            await asyncio.wait({sent})
        await self._ask("unload", model_id)
        await asyncio.gather(*(self.world.free(name) for name in self.world.of_bundle(model_id, self.world.memory)))

    def obstacle(self, model_id: str) -> str:
        return f"Triton has {model_id} as {self.world.memory.get(model_id)}"

    async def is_ready(self, model_id: str) -> bool:
        await self._ask("ready", model_id)
        return self.world.memory.get(model_id) == "READY"

    async def index(self) -> Rows:
        await self._ask("index")
        return by_owner(ServerModel(name, "1", self.world.state_of(name), "") for name in self.world.placed)

    async def reported_bytes(self, model_id: str) -> int | None:
        await self._ask("measure", model_id)
        return self.world.reported if self.world.memory.get(model_id) == "READY" else None

    async def verify(self) -> str:
        await self._ask("verify")
        return "2.51.0"

    async def purge(self) -> None:
        await self._ask("purge")
        while held := {*self.world.loading, *self.world.memory}:
            for model_id in sorted(held):
                while waited := self.world.loading.get(model_id) or self.world.freeing.get(model_id):
                    await asyncio.wait({waited})
                await self._ask("purge", model_id)
                self.world.memory.pop(model_id, None)
        self.require_life()
        self.world.placed.clear()

    async def _ask(self, point: str, model_id: str = "") -> None:
        """Triton is asked, and answers now."""
        await self.visit(point, model_id)
        await self.world.until_answers()
        self.require_life()

    def _answered(self, model_id: str) -> None:
        self._sent.remove(model_id)
        self._slots.release()


@dataclass
class FakeJournal(_Port):
    """What is noted is in the world's file at once."""

    digests: Digests = field(default_factory=lambda: Digests(b"salt"))

    def __post_init__(self) -> None:
        world = self.world
        self.records, self.crashes, self.sizes, self.needed = world.records, world.crashes, world.sizes, world.needed

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    def note(self, entry: Entry) -> None:
        table, key = self._place(entry)
        if self.process.is_alive:
            table[key] = entry

    def forget(self, entry: Entry) -> None:
        table, key = self._place(entry)
        if self.process.is_alive:
            table.pop(key, None)

    def _place(self, entry: Entry) -> tuple[dict[str, Any], str]:
        if isinstance(entry, Record):
            return self.world.records, entry.model_id
        if isinstance(entry, Sized):
            return self.world.sizes, entry.content.spec
        if isinstance(entry, Needed):
            return self.world.needed, entry.needed
        return self.world.crashes, entry.digest

    async def written(self) -> None:
        await self.world.visit("written", is_traced=False)


def ports(world: World, process: Process | None = None, *, slots: int = 2) -> Ports:
    """What one life of the adapter meets of this world."""
    process = process or Process()
    store, repository, server = FakeStore(world, process), FakeRepository(world, process), FakeServer(world, process, slots=slots)
    return Ports(store, repository, server, FakeJournal(world, process), UntoldMemory())
