"""The world of one history: its clock, its folder, its neighbours, and what is known of what has happened."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from adapter.model import ModelSpec
from adapter.settings import read_group
from adapter.settings.capacity import CapacitySettings
from adapter.volume.volume import Volume
from tests.simulation import fibers
from tests.simulation.adapter_life import Adapter, Setup
from tests.simulation.claim import Claim
from tests.simulation.files import BROKEN, FULL, Files
from tests.simulation.loop import Life, VirtualLoop
from tests.simulation.store import Endpoint, Model, content_of, said
from tests.simulation.triton import Triton

STORES = ("east", "west")
CLAIM = "claim"
"""The name of a storage config, and of the claim."""
PATHS = ("models/x", "models/y")
FIT, FRONT_BYTES = 3, 300 * 1024 * 1024
"""The number of a front's models that fit into the memory, and the bytes of each; ModelMesh's models are as nothing beside them."""


@dataclass(eq=False)
class Call:
    """One call of ModelMesh."""

    number: int
    kind: str
    model_id: str
    spec: ModelSpec | None
    adapter: Adapter
    began_at: float
    ended_at: float = math.inf
    is_cancelled: bool = False
    outcome: str = ""
    task: asyncio.Task[None] | None = None

    def cancel(self) -> None:
        """The caller goes."""
        if self.task is not None and not self.task.done():
            self.is_cancelled = True
            self.task.cancel()

    def is_over(self) -> bool:
        """Whether it was answered, or given up."""
        return self.task is not None and self.task.done()

    def __str__(self) -> str:
        what = f" {self.spec.storage_key}/{self.spec.path}" if self.spec else ""
        return f"call {self.number}: {self.kind} {self.model_id}{what}".strip()


class World:
    """One seed decides all of it."""

    def __init__(self, seed: int, folder: Path, *, is_traced: bool) -> None:
        self._is_traced = is_traced
        self.folder = folder
        self.random = random.Random(seed)
        self.loop = VirtualLoop(self.random)
        self.hub = fibers.Hub(self.loop, self.random)
        self.files = Files(self.random)
        self.problems: list[str] = []
        self.met: Counter[str] = Counter()
        self.kinds: dict[str, str] = {}
        """Version of a model → what Triton makes of it, unless that is good."""
        self.numbers = itertools.count(1)
        self.is_calm = False
        """Nothing goes wrong any more."""
        self.is_over = False
        self.calls: list[Call] = []
        self.lives: list[Life] = []
        self.adapter: Adapter | None = None
        """Who listens."""
        self.volume: Volume | None = None
        """Whose folder is locked now."""
        self.drain: asyncio.Task[bool] | None = None
        self.begun: dict[str, list[float]] = defaultdict(list)
        """When operations on an id began."""
        self.ready_at: dict[str, float] = {}
        self.owned: set[str] = set()
        """Of these models a caller was told, or was about to be."""
        self.last_load: dict[str, int] = defaultdict(lambda: -1)
        """The number of the last call."""
        self.placed_by: dict[str, Life | None] = {}
        self.blind: set[Life] = set()
        """Of these adapters a Triton has refused a call: until READY such a one need not know what Triton holds."""
        self.halved: set[Life] = set()
        """Of these adapters a purge has failed half way: until READY such a one looks at Triton before it answers."""
        self._build(seed)

    def _build(self, seed: int) -> None:
        """What the seed decides before anything happens."""
        rng = self.random
        self.loop.set_exception_handler(self._crashed)
        self.is_quiet = rng.random() < 0.4
        self.is_crowded = rng.random() < 0.08
        self.has_neighbours = not self.is_crowded and rng.random() < 0.1
        self.ids = [f"m{number}" for number in range(26 if self.is_crowded else 5)]
        apart = random.Random(f"fronts of {seed}")  # so that the other histories stay what they are
        self.front_ids = (
            [f"f{number}" for number in range(2 * FIT)] if not (self.is_crowded or self.has_neighbours) and apart.random() < 0.25 else []
        )
        """Ids that a front has loaded, where there is one; no more than `FIT` of them fit into the memory."""
        self.mesh_ids = list(self.ids)
        self.ids += self.front_ids
        self.actions = 20 if self.is_crowded else 40
        self.slow_rate = rng.choice((0.0, 0.0, 0.02, 0.1))
        self.nudge_rate = rng.choice((0.0, 0.0, 0.001, 0.005))
        """How often a caller goes in any step."""
        self.hub.slow_seconds = self._slow_seconds
        self.loop.lag = rng.choice((0.0, 0.0, 0.1, 0.4))
        self.setup = self._set_up()
        self.repository_dir = self.folder / "models" / "_triton_models"
        self.triton = self._started_triton()
        self.file_rate = rng.choice((0.0, 0.0, 0.0, 0.002, 0.02))
        self.files.errors = rng.choice((FULL, BROKEN, FULL + BROKEN))
        self.file_rate *= not self.has_neighbours
        self.defect_rate = rng.choice((0.0, 0.0, 0.05)) * (not self.has_neighbours)
        """The share of the changes of Triton's folder that end by an unforeseen exception."""
        self.odd_rate = 0.0 if self.has_neighbours else rng.choice((0.0, 0.0, 0.1, 0.3))
        """How many versions of a model Triton cannot bear."""
        self.endpoints = {name: Endpoint(name) for name in STORES}
        self.mounted = Endpoint(CLAIM)
        """What the claim holds."""
        for endpoint in (*self.endpoints.values(), self.mounted):
            for path in PATHS:
                endpoint.models[path] = Model(path)
                self.change(endpoint, path)
        self.claim = self._filled_claim()

    def _filled_claim(self) -> Claim:
        (self.folder / "config" / CLAIM).write_text(json.dumps({"type": "pvc", "name": CLAIM}))
        claim = Claim(self.hub, self.folder / "claims" / CLAIM)
        for path, model in self.mounted.models.items():
            for name, content in model.versions[-1].items():
                file = claim.folder / path / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content)
        claim.violated = self.problem
        return claim

    def place(self, name: str) -> Endpoint:
        """A store, or the claim."""
        return self.mounted if name == CLAIM else self.endpoints[name]

    def _set_up(self) -> Setup:
        rng = self.random
        budgets = ((0, False), (0, False), (150_000, True), (400_000, True), (400_000, False), (20_000_000, False))
        max_bytes, refuses = (0, False) if self.has_neighbours else rng.choice(budgets)
        slots = str(rng.choice((1, 2, 2)))
        capacity = read_group(
            CapacitySettings, {"CONTAINER_MEM_REQ_BYTES": "1280MiB", "LOADING_CONCURRENCY": slots, "LOADTIME_TIMEOUT": "90000"}
        )
        (self.folder / "config").mkdir()
        for name in STORES:
            config = {"type": "s3", "bucket": name, "endpoint_url": f"http://{name}:9000"}
            (self.folder / "config" / name).write_text(json.dumps(config))
        return Setup(root=self.folder, capacity=capacity, load_threads=4, max_bytes=max_bytes, refuses=refuses, decide=rng)

    def _started_triton(self) -> Triton:
        rng = self.random
        triton = Triton(self.loop, self.repository_dir, rng, threads=self.setup.load_threads, has_ids=rng.random() < 0.5)
        triton.load_seconds = rng.choice((0.0, 0.1, 1.0, 1.0 if self.is_quiet else 20.0))
        triton.unload_seconds = rng.choice((0.0, 0.1, 1.2))
        if self.is_crowded or self.has_neighbours:
            self.is_quiet, triton.load_seconds = True, 0.1
        if self.has_neighbours:
            self.slow_rate = self.nudge_rate = 0.0
            triton.unload_seconds = 0.1
        if self.front_ids:
            triton.unload_seconds *= 10  # what is being unloaded is in a front's way
        triton.back_after_seconds = rng.choice((0.0, 0.1, 3.0, 40.0))
        triton.usual_index_seconds = triton.index_seconds = rng.choice((0.001, 0.001, 0.2))
        triton.kind_of = self._kind_of
        triton.met = self.meet
        triton.violated = self.problem
        return triton

    def say(self, text: str) -> None:
        """For the trace, which is the same in each run of a seed."""
        if self._is_traced:
            print(f"{self.loop.time():12.4f}  {text.replace(str(self.folder), '')}", flush=True)

    def meet(self, what: str) -> None:
        """Something has happened that a history should have."""
        self.met[what] += 1
        self.say(what)

    def problem(self, text: str) -> None:
        """A rule was broken."""
        if self.is_over:
            return
        self.say(f"PROBLEM {text}")
        self.problems.append(f"{self.loop.time():.3f} s: {text}")

    def _slow_seconds(self, pool: str) -> float:
        if self.is_calm or pool == "alarm" or self.random.random() >= self.slow_rate:
            return 0.0
        self.met["slow thread"] += 1
        return self.random.choice((0.05, 0.2, 1.0))

    def _kind_of(self, files: dict[str, bytes]) -> str:
        return self.kinds.get(said(files), "good") if files else "good"

    def _crashed(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.is_over or isinstance(error, fibers.Killed) or "never retrieved" in context["message"]:
            return
        self.problem(f"a callback has failed: {context['message']}: {error!r}")

    def waiting(self) -> str:
        """Who has not ended."""
        calls = [str(call) for call in self.calls if call.ended_at == math.inf and call.adapter.life.is_alive]
        tasks = [task.get_name() for task in asyncio.all_tasks(self.loop)]
        return f"calls {calls}, tasks {tasks}, fibers {[fiber.name for fiber in self.hub.fibers]}"

    def bury(self) -> None:
        """What is left of all processes ends, unseen."""
        self.is_over = True
        for life in self.lives:
            life.is_alive = False
            self.files.close(life)
        for fiber in list(self.hub.fibers):
            fiber.kill()
        if self.adapter is not None:
            self.adapter.volume.close()
        lives = (*self.lives, *self.triton.lives)
        while left := [task for life in lives for task in life.tasks] or list(asyncio.all_tasks(self.loop)):
            for life in lives:
                life.tasks.clear()
            for task in left:
                task._log_destroy_pending = False  # type: ignore[attr-defined] # a dead process logs nothing
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
            if not any(life.tasks for life in lives):
                break

    def holds(self, model_id: str) -> list[str]:
        """What is held of one model."""
        state = self.triton.held.get(model_id)
        return ([f"memory {state}"] if state else []) + (["directory"] if (self.repository_dir / model_id).exists() else [])

    def change(self, endpoint: Endpoint, path: str) -> None:
        """The content of the store is replaced, sometimes by what Triton cannot bear."""
        model = endpoint.models[path]
        number = len(model.versions)
        place = f"{endpoint.name}/{path}"
        sizes = (self.random.randint(9_000, 50_000), self.random.randint(100, 40_000))
        if path.endswith("x"):
            files = {"model.onnx": content_of(place, number, "model.onnx", sizes[0])}
        else:
            files = {
                "config.pbtxt": b'backend: "onnxruntime"\n',
                "1/model.onnx": content_of(place, number, "model.onnx", sizes[0]),
                "1/weights.bin": content_of(place, number, "weights.bin", sizes[1]),
            }
        model.versions.append(files)
        model.since.append(self.loop.time())
        if self.random.random() < self.odd_rate:
            self.kinds[f"{place}#{number}"] = self.random.choice(("bad", "deadly", "endless"))
        self.say(f"{place} is version {number} now: {self.kinds.get(f'{place}#{number}', 'good')}")


class Part:
    """Of a history, over the world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._random = world.random
        self._loop = world.loop
        self._triton = world.triton
