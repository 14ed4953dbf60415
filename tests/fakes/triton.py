"""
A Triton in this process: its real gRPC service, over a real repository folder, without its models.

Behaves as the real one was measured to: operations on one name follow each other, a load cannot be
cancelled, an unload returns while the memory is still held, the index lists nothing but existing
directories and fails for all when one entry is bad, a restart forgets every model. The suite in
`tests/contract/server` holds it to that, beside the real one.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import grpc
import grpc.aio

from adapter.stubs import service_pb2 as pb
from adapter.stubs import service_pb2_grpc
from tests.fakes import triton_models as rules
from tests.fakes.triton_models import Behaviour

T = TypeVar("T")
MAX_VERSION = 2**63 - 1
NOT_POLLED = "failed to load '{}', failed to poll from model repository"
NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"


@dataclass(eq=False)
class _Copy:
    """One version of a model in memory."""

    version: str
    state: str = "LOADING"
    reason: str = ""
    running: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.idle.set()


@dataclass(eq=False)
class _Model:
    turn: asyncio.Lock = field(default_factory=asyncio.Lock)
    shown: dict[str, _Copy] = field(default_factory=dict)
    """Version → the copy that the index shows. A copy that a later load replaced is held, but not shown."""
    seen_ns: int = 0
    """Newest change of the files at the last load: a second load is a no-op unless they are newer."""

    @property
    def ready(self) -> list[_Copy]:
        return [copy for copy in self.shown.values() if copy.state == "READY"]


class _RefusalError(Exception):
    def __init__(self, code: grpc.StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class FakeTriton(service_pb2_grpc.GRPCInferenceServiceServicer):  # type: ignore[misc] # Triton's stubs have no types
    """`async with FakeTriton(folder) as triton:`; a client finds it at `triton.target`, also after a restart."""

    def __init__(
        self,
        repository: Path,
        *,
        load_threads: int = 4,
        explicit: bool = True,
        socket: Path | None = None,
        connection_seconds: float = 0,
        name: str | None = None,
    ) -> None:
        """`connection_seconds`: `--grpc-max-connection-age`. `name`: `--id`; None for another one at each start."""
        self.repository = repository
        self.name = name
        self.explicit = explicit
        self.default = Behaviour()
        self.index_seconds = 0.0
        """A listing takes so long, whoever still waits for it; meanwhile nothing else is answered, and no inference begins."""
        self.listing_seconds = 0.0
        """Of all listings."""
        self.failing_listings = 0
        """So many of the next RepositoryIndex calls fail as if a directory had vanished."""
        self.calls: Counter[str] = Counter()
        self.journal: list[tuple[str, str]] = []
        """Loads and unloads in the order of arrival: ("load", name), ("unload", name)."""
        self.max_parallel_loads = 0
        self.starts = 0
        self._load_threads = load_threads
        self._socket = socket
        self._age: list[tuple[str, int]] = []
        if connection_seconds:
            self._age = [
                ("grpc.max_connection_age_ms", round(connection_seconds * 1000)),
                ("grpc.max_connection_age_grace_ms", round(connection_seconds * 1000)),
            ]
        self._port = 0
        self._server: grpc.aio.Server | None = None
        self._behaviours: dict[str, Behaviour] = {}
        self._awake = asyncio.Event()
        self._awake.set()
        self._death: asyncio.Task[None] | None = None
        self._forget()

    def _forget(self) -> None:
        self._models: dict[str, _Model] = {}
        self._held: set[_Copy] = set()
        self._held_names: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._threads = asyncio.Semaphore(self._load_threads)
        self._parallel_loads = 0
        self._arrived: dict[tuple[str, str], asyncio.Event] = {}
        self._listing = asyncio.Lock()
        self._is_quiet = asyncio.Event()
        self._is_quiet.set()

    @property
    def target(self) -> str:
        """For a gRPC channel."""
        return f"unix:{self._socket}" if self._socket else f"127.0.0.1:{self._port}"

    @property
    def in_memory(self) -> dict[str, int]:
        """Name → copies that hold memory, hidden ones too."""
        return {name: count for name, count in self._held_names.items() if count}

    def behaviour(self, name: str) -> Behaviour:
        """The model's own behaviour, to be changed; a copy of the default until then."""
        if name not in self._behaviours:
            self._behaviours[name] = Behaviour(**vars(self.default))
        return self._behaviours[name]

    async def arrival(self, call: str, name: str) -> None:
        """Wait until a call (`load`, `unload`, `infer`) for this model has come, or return if one has since the start."""
        await self._arrived.setdefault((call, name), asyncio.Event()).wait()

    async def start(self) -> FakeTriton:
        """Listen; after a stop on the same port, with all models forgotten."""
        if self._death is not None:
            await self._death
            self._death = None
        self._server = grpc.aio.server(
            options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1), *self._age]
        )
        service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(self, self._server)
        self._port = self._server.add_insecure_port(self.target)
        await self._server.start()
        self.starts += 1
        return self

    async def stop(self) -> None:
        """As `kill -9`: every model is gone, then every connection breaks."""
        await self._begin_to_die()

    async def restart(self, after_seconds: float = 0) -> None:
        """As `kill -9` and a new process so soon; where it is at once, the port may never be seen closed."""
        await self.stop()
        await asyncio.sleep(after_seconds)
        await self.start()

    def _begin_to_die(self) -> asyncio.Task[None]:
        if self._death is None:
            self._death = asyncio.get_running_loop().create_task(self._die())
        return self._death

    async def _die(self) -> None:
        server, self._server = self._server, None
        tasks = set(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._forget()
        if server is not None:
            await server.stop(None)

    async def __aenter__(self) -> FakeTriton:
        return await self.start()

    async def __aexit__(self, *_: object) -> None:
        self.thaw()
        await self.stop()

    def freeze(self) -> None:
        """As SIGSTOP: it accepts connections and answers nothing."""
        self._awake.clear()

    def thaw(self) -> None:
        """As SIGCONT."""
        self._awake.set()

    # The service. Names are those of inference.GRPCInferenceService.

    async def ServerLive(self, request: Any, context: Any) -> Any:
        await self._enter("ServerLive", context)
        return pb.ServerLiveResponse(live=True)

    async def ServerReady(self, request: Any, context: Any) -> Any:
        await self._enter("ServerReady", context)
        return pb.ServerReadyResponse(ready=True)

    async def ServerMetadata(self, request: Any, context: Any) -> Any:
        await self._enter("ServerMetadata", context)
        return pb.ServerMetadataResponse(name=self.name or f"fake-{self.starts}", version="2.51.0", extensions=["model_repository"])

    async def RepositoryIndex(self, request: Any, context: Any) -> Any:
        await self._enter("RepositoryIndex", context)
        if self.index_seconds:
            await self._answer(self._list(self.index_seconds), context)
        if self.failing_listings:
            self.failing_listings -= 1
            await context.abort(grpc.StatusCode.INTERNAL, f"failed to stat file {self.repository}/vanished")
        reply = pb.RepositoryIndexResponse()
        with os.scandir(self.repository) as entries:
            for entry in sorted(entries, key=lambda entry: entry.name):
                if entry.is_symlink() and not Path(entry.path).exists():
                    await context.abort(grpc.StatusCode.INTERNAL, f"failed to stat file {entry.path}")
                if entry.is_dir():
                    self._add_rows(reply, entry.name)
        return reply

    async def _list(self, seconds: float) -> None:
        async with self._listing:
            self._is_quiet.clear()
            try:
                await asyncio.sleep(seconds)
            finally:
                self.listing_seconds += seconds
                self._is_quiet.set()

    def _add_rows(self, reply: Any, name: str) -> None:
        model = self._models.get(name)
        if model is None or not model.shown:
            reply.models.add(name=name)
            return
        for copy in model.shown.values():
            reply.models.add(name=name, version=copy.version, state=copy.state, reason=copy.reason)

    async def RepositoryModelLoad(self, request: Any, context: Any) -> Any:
        await self._enter("RepositoryModelLoad", context, "load", request.model_name)
        await self._answer(self._load(request.model_name), context)
        return pb.RepositoryModelLoadResponse()

    async def RepositoryModelUnload(self, request: Any, context: Any) -> Any:
        await self._enter("RepositoryModelUnload", context, "unload", request.model_name)
        await self._answer(self._unload(request.model_name), context)
        return pb.RepositoryModelUnloadResponse()

    async def ModelReady(self, request: Any, context: Any) -> Any:
        await self._enter("ModelReady", context)
        return pb.ModelReadyResponse(ready=bool(self._ready(request.name)))

    async def ModelStatistics(self, request: Any, context: Any) -> Any:
        await self._enter("ModelStatistics", context)
        reply = pb.ModelStatisticsResponse()
        for name in [request.name] if request.name else list(self._models):
            for copy in self._ready(name):
                model = reply.model_stats.add(name=name, version=copy.version)
                if reported := self.behaviour(name).reported_bytes:
                    model.memory_usage.add(type="GPU", id=0, byte_size=reported)
        if request.name and not reply.model_stats:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"requested model '{request.name}' is not available")
        return reply

    async def ModelInfer(self, request: Any, context: Any) -> Any:
        """Echoes its inputs as outputs, after the model's time; holds the copy meanwhile, cancelled or not."""
        await self._enter("ModelInfer", context, "infer", request.model_name)
        copy = await self._ready_copy(request.model_name, context)
        copy.running += 1
        copy.idle.clear()
        await self._answer(self._infer(request.model_name, copy), context)
        reply = pb.ModelInferResponse(model_name=request.model_name, model_version=copy.version, id=request.id)
        for tensor in request.inputs:
            reply.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape, contents=tensor.contents)
        reply.raw_output_contents.extend(request.raw_input_contents)
        return reply

    async def _enter(self, method: str, context: Any, call: str = "", name: str = "") -> None:
        self.calls[method] += 1
        await self._awake.wait()
        if method != "RepositoryIndex":
            await self._is_quiet.wait()
        if self._server is None:
            await asyncio.get_running_loop().create_future()  # it is dead, and the connection breaks next
        if call in ("load", "unload"):
            if not self.explicit:
                await context.abort(grpc.StatusCode.UNAVAILABLE, NOT_EXPLICIT)
            self.journal.append((call, name))
        if call:
            self._arrived.setdefault((call, name), asyncio.Event()).set()

    async def _answer(self, work: Coroutine[Any, Any, None], context: Any) -> None:
        """Let the work go on when the caller has gone."""
        try:
            await asyncio.shield(self._spawn(work))
        except _RefusalError as refusal:
            await context.abort(refusal.code, refusal.text)

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # a refusal whose caller has gone is nobody's any more

    def _ready(self, name: str) -> list[_Copy]:
        model = self._models.get(name)
        return model.ready if model else []

    async def _ready_copy(self, name: str, context: Any) -> _Copy:
        ready = self._ready(name)
        if not ready:
            known = name in self._models and self._models[name].shown
            what = f"'{name}' has no available versions" if known else f"'{name}' is not found"
            await context.abort(grpc.StatusCode.NOT_FOUND, f"Request for unknown model: {what}")
        return ready[0]

    async def _infer(self, name: str, copy: _Copy) -> None:
        try:
            await self._stay(name, "infer", 0)
        finally:
            copy.running -= 1
            if not copy.running:
                copy.idle.set()

    async def _load(self, name: str) -> None:
        self._parallel_loads += 1
        self.max_parallel_loads = max(self.max_parallel_loads, self._parallel_loads)
        model = self._models.setdefault(name, _Model())
        try:
            async with model.turn:
                await self._load_in_turn(name, model)
        finally:
            self._parallel_loads -= 1

    async def _load_in_turn(self, name: str, model: _Model) -> None:
        folder = self.repository / name
        if not name or not folder.is_dir() or not any(folder.iterdir()):
            raise _RefusalError(grpc.StatusCode.INTERNAL, NOT_POLLED.format(name))
        newest = rules.newest_ns(folder)
        if model.ready and newest <= model.seen_ns:
            return
        versions = rules.versions(folder)
        if not versions:
            raise _RefusalError(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"load failed for model '{name}': at least one version must be available under the version policy of model '{name}'\n",
            )
        if int(versions[0]) > MAX_VERSION:
            await self._take_down()
        before = dict(model.shown)
        copies = [_Copy(version) for version in versions]
        if not model.ready:
            model.shown = {copy.version: copy for copy in copies}
        reasons = await asyncio.gather(*(self._load_copy(name, folder, copy) for copy in copies))
        if any(reasons):
            for copy in copies:
                self._begin_to_free(name, copy)
            told = "".join(f"version {c.version} is at UNAVAILABLE state: {r};" for c, r in zip(copies, reasons, strict=True))
            raise _RefusalError(grpc.StatusCode.INVALID_ARGUMENT, f"load failed for model '{name}': {told}\n")
        model.seen_ns = newest
        model.shown = {copy.version: copy for copy in copies}
        for copy in before.values():
            self._begin_to_free(name, copy)

    async def _load_copy(self, name: str, folder: Path, copy: _Copy) -> str:
        """The reason of its failure, or empty."""
        behaviour = self.behaviour(name)
        async with self._threads:
            self._hold(name, copy)
            if behaviour.die:
                await self._take_down()
            if behaviour.hang or rules.lacks_python_file(folder, copy.version):
                await asyncio.get_running_loop().create_future()
            await self._stay(name, "load", behaviour.load_seconds)
        if behaviour.refuse is not None:
            self._release(name, copy)
            copy.state, copy.reason = "UNAVAILABLE", f"Internal: {behaviour.refuse}"
            return copy.reason
        copy.state = "READY"
        return ""

    async def _unload(self, name: str) -> None:
        model = self._models.get(name)
        if model is None:
            return
        async with model.turn:
            await self._stay(name, "tell", 0)
            for copy in model.shown.values():
                self._begin_to_free(name, copy)

    async def _stay(self, name: str, step: str, seconds: float) -> None:
        await asyncio.sleep(seconds)
        while self.behaviour(name).is_held(step):
            await asyncio.sleep(0.005)

    def _begin_to_free(self, name: str, copy: _Copy) -> None:
        if copy.state == "READY":
            copy.state = "UNLOADING"
            self._spawn(self._free(name, copy))

    async def _free(self, name: str, copy: _Copy) -> None:
        await copy.idle.wait()
        await self._stay(name, "unload", self.behaviour(name).unload_seconds)
        copy.state, copy.reason = "UNAVAILABLE", "unloaded"
        self._release(name, copy)

    def _hold(self, name: str, copy: _Copy) -> None:
        self._held.add(copy)
        self._held_names[name] += 1

    def _release(self, name: str, copy: _Copy) -> None:
        if copy in self._held:
            self._held.remove(copy)
            self._held_names[name] -= 1

    async def _take_down(self) -> None:
        self._begin_to_die()
        await asyncio.get_running_loop().create_future()  # until the death cancels it
