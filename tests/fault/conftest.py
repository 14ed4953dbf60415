"""
The whole adapter in this process, behind its gRPC face, with neighbours that can be hurt.

S3 is the real server behind a proxy that spoils answers; Triton is the fake one, which keeps the
measured semantics and can hang, refuse and die on request.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest

from adapter._pb import model_runtime_pb2 as spi
from adapter._pb import model_runtime_pb2_grpc as spi_rpc
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.settings import Settings
from adapter.units import MIB
from adapter.volume.volume import Volume
from adapter.wiring import Adapter, build
from tests.builders import load_request
from tests.fakes.s3_proxy import S3Proxy
from tests.fakes.triton import FakeTriton
from tests.real import install
from tests.real.s3 import S3Server

BUCKET = "models"
MODEL = b"class TritonPythonModel: pass"
READY = spi.RuntimeStatusResponse.READY
PART_BYTES = MIB
SETTLE_SECONDS = 120
OWN_FILES = ("lock", "journal.jsonl", "journal.jsonl.new")


async def until(is_so: Callable[[], object], what: str) -> None:
    """Ask again and again, with a bound that a busy machine keeps."""
    try:
        async with asyncio.timeout(SETTLE_SECONDS):
            while not is_so():
                await asyncio.sleep(0.005)
    except TimeoutError:
        raise AssertionError(f"not within {SETTLE_SECONDS} s: {what}") from None


async def until_ready(runtime: Any, seconds: float = SETTLE_SECONDS, pause_seconds: float = 0.01) -> None:
    """Ask for the status as ModelMesh does at its start: all that was loaded is purged."""
    async with asyncio.timeout(seconds):
        while (await runtime.runtimeStatus(spi.RuntimeStatusRequest())).status != READY:
            await asyncio.sleep(pause_seconds)


async def code_of(call: Any) -> grpc.StatusCode:
    """How a call fails."""
    with pytest.raises(grpc.aio.AioRpcError) as failed:
        await call
    return failed.value.code()


def environ_of(folder: Path, triton: str, **settings: str) -> dict[str, str]:
    """Settings of an adapter over `volume` and `config` in this folder, beside the Triton at this target."""
    return {
        "CONTAINER_MEM_REQ_BYTES": "2GiB", "CACHE_MAX_BYTES": "0", "LOADING_CONCURRENCY": "2", "LOADTIME_TIMEOUT": "30000",
        "METRICS_PORT": "0", "UNLOAD_TIMEOUT_SECONDS": "20", "STORAGE_CONFIG_DIR": f"{folder}/config", "RUNTIME_ENDPOINT": triton,
        "ROOT_MODEL_DIR": f"{folder}/volume", "ADAPTER_ENDPOINT": f"unix:{folder}/a.sock", **settings,
    }  # fmt: skip


@asynccontextmanager
async def running(environ: dict[str, str], **parts: Any) -> AsyncIterator[tuple[Adapter, Any]]:
    """An adapter in this process, and the stub of its SPI over a real channel. Raises StartError."""
    async with build(Settings.from_env(environ), **parts) as adapter, grpc.aio.insecure_channel(adapter.spi.addresses[0]) as channel:
        yield adapter, spi_rpc.ModelRuntimeStub(channel)


class Hold:
    """A point where a thread stays until it is released."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._released = threading.Event()

    def __call__(self) -> None:
        self._reached.set()
        self._released.wait(SETTLE_SECONDS)

    async def reached(self) -> None:
        """Wait for the thread."""
        await until(self._reached.is_set, "a thread at the hold point")

    def release(self) -> None:
        """Let it go on."""
        self._released.set()


@dataclass
class System:
    """The adapter, its neighbours, and words for what a test does with them."""

    runtime: Any
    """Stub of `mmesh.ModelRuntime`, over a real channel."""
    lifecycle: RuntimeLifecycle
    triton: FakeTriton
    s3: S3Server
    proxy: S3Proxy
    volume: Volume
    stored: set[str] = field(default_factory=set)
    """Paths of models that this test has put into the bucket."""

    def put(self, path: str, **files: bytes) -> None:
        """Files of a python model at this path of the bucket; `model` is its model.py."""
        self.stored.add(path)
        names = {"model": "1/model.py", "weights": "1/weights.bin", "config": "config.pbtxt"}
        self.s3.put_folder(BUCKET, path, {names[name]: content for name, content in files.items()})

    def load(self, model_id: str, path: str, **key: Any) -> Any:
        """A call under way."""
        return self.runtime.loadModel(load_request(model_id, "python", path, **key))

    def unload(self, model_id: str) -> Any:
        """A call under way."""
        return self.runtime.unloadModel(spi.UnloadModelRequest(modelId=model_id))

    async def failure(self, model_id: str, path: str, **key: Any) -> grpc.aio.AioRpcError:
        """How a load fails."""
        with pytest.raises(grpc.aio.AioRpcError) as failed:
            await self.load(model_id, path, **key)
        return failed.value

    def leftovers(self) -> list[str]:
        """What is left of any model: in Triton, in the folders, in our table, in threads."""
        files = [str(path) for path in self.volume.repository_dir.parent.rglob("*") if path.name not in OWN_FILES and not path.is_dir()]
        directories = [str(path) for path in self.volume.repository_dir.iterdir()]
        directories += [str(path) for path in self.volume.staging_dir.iterdir()]
        memory = [f"Triton holds {name}" for name in self.triton.in_memory]
        return files + directories + memory + [repr(model) for model in self.lifecycle.registry]

    def phases(self, model_id: str) -> dict[str, float]:
        """Seconds of the phases of the load under way, the running one included; empty when there is none."""
        operation = self.lifecycle.registry.operation_on(model_id)
        return operation.phases() if operation else {}

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        await until(lambda: not self.lifecycle.registry.operations(), "nothing under way")

    async def deserted(self) -> None:
        """Wait until the adapter has heard that no caller waits for a load any more."""
        await until(lambda: not any(operation.callers for operation in self.lifecycle.registry.operations()), "no caller")


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    with S3Server(tmp_path_factory.mktemp("s3")) as server:
        server.put(BUCKET, "-", b"")
        yield server


@pytest.fixture
def settings() -> dict[str, str]:
    """Override to change settings of the adapter."""
    return {}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The mounted storage secret."""
    folder = tmp_path / "config"
    folder.mkdir()
    return folder


@pytest.fixture
def config_for_pods(config: Path, s3: S3Server) -> Path:
    """The mounted storage secret of a pod with the real Triton, which this machine can run."""
    try:
        install.install()
    except install.CannotRunError as reason:
        pytest.skip(f"the real Triton cannot run here: {reason}")
    (config / "s3").write_text(json.dumps(s3.storage_config(BUCKET)))
    return config


@pytest.fixture
async def neighbours(tmp_path: Path, config: Path, s3: S3Server) -> AsyncIterator[tuple[FakeTriton, S3Proxy]]:
    """A Triton over the volume, and the proxy that the secret's key `s3` leads through."""
    with S3Proxy(s3.endpoint_url) as proxy:
        (config / "s3").write_text(json.dumps(s3.storage_config(BUCKET) | {"endpoint_url": proxy.endpoint_url}))
        async with FakeTriton(tmp_path / "volume" / "_triton_models") as triton:
            yield triton, proxy


@pytest.fixture
async def system(settings: dict[str, str], tmp_path: Path, neighbours: tuple[FakeTriton, S3Proxy], s3: S3Server) -> AsyncIterator[System]:
    triton, proxy = neighbours
    async with running(environ_of(tmp_path, triton.target, **settings)) as (adapter, runtime):
        system = System(runtime, adapter.lifecycle, triton, s3, proxy, adapter.volume)
        yield system
        for path in system.stored:
            shutil.rmtree(s3.root / BUCKET / path, ignore_errors=True)  # one may be below another
