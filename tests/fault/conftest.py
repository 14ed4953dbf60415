"""
The whole adapter in this process, behind its gRPC face, with neighbours that can be hurt.

S3 is the real server behind a proxy that spoils answers; Triton is the fake one, which keeps the
measured semantics and can hang, refuse and die on request.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest

from adapter._pb import model_runtime_pb2 as spi
from adapter._pb import model_runtime_pb2_grpc as spi_rpc
from adapter.lifecycle.lifecycle import RuntimeLifecycle
from adapter.settings import CapacitySettings, PullSettings, read_group
from adapter.spi.listen import listen
from adapter.spi.servicer import ModelRuntime
from adapter.storage.store import Store
from adapter.triton.client import TritonClient
from adapter.triton.repository import Repository
from adapter.triton.server import TritonServer
from adapter.units import Endpoint
from adapter.volume import Volume
from tests.fakes.s3_proxy import S3Proxy
from tests.fakes.triton import FakeTriton
from tests.real.s3 import S3Server

BUCKET = "models"
PART_BYTES = 1 << 20
SETTLE_SECONDS = 30


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

    def put(self, path: str, **files: bytes) -> None:
        """Files of a python model at this path of the bucket; `model` is its model.py."""
        names = {"model": "1/model.py", "weights": "1/weights.bin", "config": "config.pbtxt"}
        self.s3.put_folder(BUCKET, path, {names[name]: content for name, content in files.items()})

    def load(self, model_id: str, path: str, **key: Any) -> Any:
        """A call under way."""
        model_key = json.dumps({"storage_key": "s3", "model_type": "python"} | key)
        return self.runtime.loadModel(spi.LoadModelRequest(modelId=model_id, modelType="mt:python", modelPath=path, modelKey=model_key))

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
        files = [str(path) for path in self.volume.repository_dir.parent.rglob("*") if path.name != "lock" and not path.is_dir()]
        directories = [str(path) for path in self.volume.repository_dir.iterdir()]
        directories += [str(path) for path in self.volume.staging_dir.iterdir()]
        memory = [f"Triton holds {name}" for name in self.triton.in_memory]
        return files + directories + memory + [repr(model) for model in self.lifecycle.registry]

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while self.lifecycle.registry.operations():
                await asyncio.sleep(0.01)


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
async def system(tmp_path: Path, s3: S3Server, settings: dict[str, str]) -> AsyncIterator[System]:
    environ = {"CONTAINER_MEM_REQ_BYTES": "2GiB", "LOADING_CONCURRENCY": "2", "LOADTIME_TIMEOUT": "30000"} | settings
    capacity = read_group(CapacitySettings, environ)
    root = tmp_path / "volume"
    volume = Volume(root / "_triton_models", root / "_adapter")
    volume.claim()
    config = tmp_path / "config"
    config.mkdir()
    with S3Proxy(s3.endpoint_url) as proxy:
        (config / "s3").write_text(json.dumps(s3.storage_config(BUCKET) | {"endpoint_url": proxy.endpoint_url}))
        pull = read_group(PullSettings, environ | {"STORAGE_CONFIG_DIR": str(config), "PULL_PART_BYTES": str(PART_BYTES)})
        store = Store(settings=pull, root=root, volume=volume, max_loading=capacity.max_loading)
        async with FakeTriton(volume.repository_dir) as triton:
            repository = Repository(volume)
            server = TritonServer(
                client=TritonClient(triton.target), repository=repository, max_loading=capacity.max_loading, unload_timeout_seconds=20
            )
            lifecycle = RuntimeLifecycle(store=store, repository=repository, server=server, capacity=capacity, unload_timeout_seconds=170)
            lifecycle.start()
            socket = Endpoint(socket=tmp_path / "a.sock")
            spi_server = await listen(
                endpoint=socket,
                runtime=ModelRuntime(lifecycle=lifecycle, capacity=capacity),
                readiness=lifecycle.readiness,
                reflection=False,
            )
            async with grpc.aio.insecure_channel(socket.target) as channel:
                yield System(spi_rpc.ModelRuntimeStub(channel), lifecycle, triton, s3, proxy, volume)
            await spi_server.stop(0)
            await server.close()
            store.close()
    volume.close()
