"""
A Triton, our `TritonServer` on it, and a second client that looks on: the same for the fake and the real one.

A test can hold a model in a step (`load`, `infer`, `unload`) for as long as it needs: the fake's
behaviour and the real one's python model look for the same file.
"""

from __future__ import annotations

import asyncio
import struct
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import grpc.aio

from adapter.model import Artifact, Layout, ServerModel, SourceFile
from adapter.stubs import service_pb2 as pb
from adapter.stubs import service_pb2_grpc
from adapter.triton.client import CHANNEL_OPTIONS, TritonClient
from adapter.triton.loads import Limits
from adapter.triton.repository import Repository
from adapter.triton.server import TritonServer
from adapter.volume.volume import Volume
from tests.fakes.triton import FakeTriton
from tests.real.ports import free_ports
from tests.real.triton import Triton

CONFIG = """backend: "python"
input [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
output [{ name: "X" data_type: TYPE_FP32 dims: [-1] }]
instance_group [{ kind: KIND_CPU count: 1 }]
version_policy { all {} }
"""
MODEL = """import os
import time
import triton_python_backend_utils as triton

def stay(step):
    while os.path.exists({gates!r} + step):
        open({gates!r} + step + ".reached", "w").close()
        time.sleep(0.01)

class TritonPythonModel:
    def initialize(self, args):
        stay("load")
        {fail}

    def execute(self, requests):
        stay("infer")
        return [triton.InferenceResponse([triton.get_input_tensor_by_name(request, "X")]) for request in requests]

    def finalize(self):
        stay("unload")
"""
FAILING_LINE = MODEL[: MODEL.index("{fail}")].count("\n") + 1
"""Of the model's source."""


async def unnoticed() -> None:
    """For a load whose sending does not matter."""


async def is_still_running(task: asyncio.Task[Any]) -> bool:
    """After a while in which it could have ended."""
    await asyncio.wait({task}, timeout=0.3)
    return not task.done()


async def unloading(rig: Rig) -> tuple[TritonServer, asyncio.Task[None]]:
    """A model `m` that Triton frees until it is let go, and the unload that waits for it."""
    server = rig.connect()
    await rig.place("m", hold="unload")
    await server.load("m", unnoticed)
    unload = asyncio.create_task(server.unload("m"))
    await rig.until_state("m", "UNLOADING")
    return server, unload


async def freed(rig: Rig, unload: asyncio.Task[None]) -> None:
    """The model is let go: the unload ends when it is gone."""
    rig.let_go("m", "unload")
    await unload
    assert await rig.states("m") == ["UNAVAILABLE"]


class Rig(ABC):
    """What a test of the suite works with."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.volume = Volume(repository_dir=root / "_triton_models", cache_dir=root / "_adapter")
        self.volume.claim()
        self.repository = Repository(self.volume)
        self._servers: list[TritonServer] = []
        self._channel: grpc.aio.Channel | None = None
        self._artifacts = 0

    @property
    @abstractmethod
    def target(self) -> str:
        """For a gRPC channel."""

    @abstractmethod
    async def start(self) -> None:
        """Start, or start again after `kill`, at the same address."""

    @abstractmethod
    async def kill(self) -> None:
        """As `kill -9`."""

    @abstractmethod
    async def replace(self) -> None:
        """Kill it, with another one there at once: nobody needs to see its port closed."""

    @abstractmethod
    def freeze(self) -> None:
        """As SIGSTOP."""

    @abstractmethod
    def thaw(self) -> None:
        """As SIGCONT."""

    def connect(self, *, max_loading: int = 4, load_threads: int = 4, repository: Repository | None = None) -> TritonServer:
        """Our side of the connection; closed at the end of the test."""
        server = TritonServer(
            TritonClient(self.target), repository or self.repository, Limits(max_loading, load_threads, load_seconds=30.0)
        )
        self._servers.append(server)
        return server

    async def _disconnect(self) -> None:
        if self._channel is not None:
            await self._channel.close()
            self._channel = None

    def stub(self) -> Any:
        """A client of somebody else, with a connection of its own: the service as it is."""
        if self._channel is None:
            self._channel = grpc.aio.insecure_channel(self.target, options=(*CHANNEL_OPTIONS, ("grpc.use_local_subchannel_pool", 1)))
        return service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    async def place(
        self,
        name: str,
        *,
        hold: str | None = None,
        error: str | None = None,
        versions: tuple[str, ...] = ("1",),
    ) -> None:
        """Place a model that is held in a step, or fails to load with `RuntimeError: <error>`."""
        if hold is not None:
            self.hold(name, hold)
        source = MODEL.format(
            gates=str(self._gate(name, "")),
            fail=f"raise RuntimeError({error!r})" if error is not None else "pass",
        ).encode()
        self._artifacts += 1
        artifact = self.volume.cache_dir / f"artifact-{self._artifacts}"
        artifact.mkdir(parents=True)
        (artifact / "model.py").write_bytes(source)
        file = SourceFile("model.py", len(source), "")
        layout = Layout({f"{version}/model.py": file for version in versions}, {"config.pbtxt": CONFIG.encode()})
        await self.repository.place(name, layout, Artifact(artifact, is_ours=True))

    def hold(self, name: str, step: str) -> None:
        """Hold the model when it comes to this step."""
        self._gate(name, step).touch()

    def let_go(self, name: str, step: str) -> None:
        """Let the model leave the step that it is held in."""
        self._gate(name, step).unlink()

    async def until_held(self, name: str, step: str) -> None:
        """Wait until the model has come to the step that it is held in."""
        async with asyncio.timeout(60):
            while not self._gate(name, f"{step}.reached").exists():
                await asyncio.sleep(0.01)

    def _gate(self, name: str, step: str) -> Path:
        return self.root / f"{name}.{step}"

    async def rows(self, name: str | None = None) -> list[ServerModel]:
        """What Triton's index says now, asked by the onlooker."""
        reply = await self.stub().RepositoryIndex(pb.RepositoryIndexRequest())
        return [ServerModel(row.name, row.version, row.state, row.reason) for row in reply.models if name in (None, row.name)]

    async def states(self, name: str) -> list[str]:
        """The states of the model's rows; empty when the index does not list it."""
        return [row.state for row in await self.rows(name)]

    async def until_state(self, name: str, state: str) -> None:
        """Wait until the index shows the state."""
        async with asyncio.timeout(60):
            while await self.states(name) != [state]:
                await asyncio.sleep(0.01)

    async def infer(self, name: str, value: float = 1.5) -> float:
        """One inference: the number that was sent."""
        request = pb.ModelInferRequest(model_name=name, raw_input_contents=[struct.pack("<f", value)])
        request.inputs.add(name="X", datatype="FP32", shape=[1])
        reply = await self.stub().ModelInfer(request)
        return float(struct.unpack("<f", reply.raw_output_contents[0])[0])

    async def close(self) -> None:
        """End what `connect` and `stub` made."""
        for server in self._servers:
            await server.close()
        await self._disconnect()
        self.repository.close()
        self.volume.close()


class FakeRig(Rig):
    """Over the fake."""

    def __init__(self, root: Path, *, explicit: bool = True, name: str | None = None, connection_seconds: float = 0) -> None:
        super().__init__(root)
        self.triton = FakeTriton(self.volume.repository_dir, explicit=explicit, name=name, connection_seconds=connection_seconds)

    @property
    def target(self) -> str:
        return self.triton.target

    async def place(self, name: str, **behaviour: Any) -> None:
        """Also tells the fake how the model behaves."""
        own = self.triton.behaviour(name)
        own.is_held = partial(self._is_held, name)
        error = behaviour.get("error")
        source = f"{self.volume.repository_dir}/{name}/1/model.py"
        own.refuse = None if error is None else f"RuntimeError: {error}\n\nAt:\n  {source}({FAILING_LINE}): initialize\n"
        await super().place(name, **behaviour)

    def _is_held(self, name: str, step: str) -> bool:
        is_held = self._gate(name, step).exists()
        if is_held:
            self._gate(name, f"{step}.reached").touch()
        return is_held

    async def start(self) -> None:
        await self.triton.start()

    async def kill(self) -> None:
        await self._disconnect()
        await self.triton.stop()

    async def replace(self) -> None:
        await self._disconnect()
        await self.triton.restart()

    def freeze(self) -> None:
        self.triton.freeze()

    def thaw(self) -> None:
        self.triton.thaw()

    async def close(self) -> None:
        await super().close()
        self.thaw()
        await self.triton.stop()


class RealRig(Rig):
    """Over the real one."""

    def __init__(self, root: Path, *, explicit: bool = True, name: str | None = None, connection_seconds: float = 0) -> None:
        super().__init__(root)
        self._explicit = explicit
        self._name = name
        self._args = ["--reuse-grpc-port=true"]
        if connection_seconds:
            milliseconds = round(connection_seconds * 1000)
            self._args += [f"--grpc-max-connection-age={milliseconds}", f"--grpc-max-connection-age-grace={milliseconds}"]
        self.triton = self._triton()

    def _triton(self, ports: Sequence[int] = ()) -> Triton:
        return Triton(
            self.volume.repository_dir,
            explicit=self._explicit,
            extra_args=self._args,
            log_path=self.root / "triton.log",
            name=self._name,
            ports=ports,
        )

    @property
    def target(self) -> str:
        return self.triton.grpc_target

    async def start(self) -> None:
        await asyncio.to_thread(self.triton.start)

    async def kill(self) -> None:
        await self._disconnect()
        await asyncio.to_thread(self.triton.kill)

    async def replace(self) -> None:
        """The next one listens on the same port before the old one is killed."""
        before = self.triton
        self.triton = self._triton([before.grpc_port, *free_ports(2)])
        await self.start()
        await self._disconnect()
        await asyncio.to_thread(before.kill)

    def freeze(self) -> None:
        self.triton.freeze()

    def thaw(self) -> None:
        self.triton.thaw()

    async def close(self) -> None:
        await super().close()
        if self.triton.is_running:
            self.thaw()
        await self.kill()
