"""The whole adapter in this process, behind its socket, over a store in memory and the fake Triton: asked as ModelMesh asks."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import AsyncExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import grpc

from adapter._pb import model_runtime_pb2 as spi
from adapter._pb import model_runtime_pb2_grpc as spi_rpc
from adapter.settings import Settings
from adapter.wiring import Adapter, build
from tests.builders import load_request
from tests.fakes.memory_bucket import MemoryBucket
from tests.fakes.triton import FakeTriton
from tests.unit.storage.rigs import MemoryClients

MODEL = {"m/config.pbtxt": b'backend: "python"', "m/1/model.py": b"class TritonPythonModel:\n    pass\n"}
OTHERS = {
    "other/model.onnx": b"onnx",
    "packed.zip": b"PK\x03\x04 no archive",
    "a": b"",
    "é/1/model.onnx": b"x",
    "b/1/x": b"y",
    "b/01/x": b"y",
}
OWN_FILES = ("lock", "journal.jsonl", "journal.jsonl.new")
START_SECONDS = 30


class WholeAdapter:
    """`with WholeAdapter(folder) as adapter:`. Its loop runs in a thread of its own, so a test can be as synchronous as hypothesis."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "volume"
        self.bucket = MemoryBucket(MODEL | OTHERS)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="whole adapter", daemon=True)
        self._stack = AsyncExitStack()
        self._sentinel = folder / "sentinel"
        self._beside: list[str] = []
        self.runtime: Any = None
        self.capacity_bytes = 0

    def __enter__(self) -> Self:
        config = self.folder / "config"
        config.mkdir()
        for name in ("s3", "default"):
            (config / name).write_text(json.dumps({"type": "s3", "bucket": "b"}))
        (config / "broken").write_text("{")
        self._sentinel.write_text("whole")
        self._thread.start()
        self._run(self._start(config))
        self._beside = sorted(os.listdir(self.folder))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._channel.close()
        self._run(self._stack.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(START_SECONDS)
        self._loop.close()

    def check_nothing_is_left(self) -> None:
        """Nothing is loaded: not in Triton, not in the folder of models, not beside the volume."""
        assert os.listdir(self.root / "_triton_models") == []
        assert sorted(os.listdir(self.folder)) == self._beside
        assert self._sentinel.read_text() == "whole"

    def check_an_honest_model(self) -> None:
        """Loads, is known, and goes; then the volume has our own files alone."""
        for _ in range(2):
            assert self.runtime.loadModel(load_request("honest", "python", "m"), timeout=30).sizeInBytes > 0
        assert self.runtime.modelSize(spi.ModelSizeRequest(modelId="honest"), timeout=30).sizeInBytes > 0
        self.runtime.unloadModel(spi.UnloadModelRequest(modelId="honest"), timeout=30)
        self.check_nothing_is_left()
        assert not list(self._adapter.lifecycle.registry)
        assert not self._triton.in_memory

    async def _start(self, config: Path) -> None:
        self._triton = await self._stack.enter_async_context(FakeTriton(self.root / "_triton_models"))
        environ = {
            "CONTAINER_MEM_REQ_BYTES": "2GiB", "CACHE_MAX_BYTES": "0", "LOADING_CONCURRENCY": "2", "LOADTIME_TIMEOUT": "20000",
            "METRICS_PORT": "0", "UNLOAD_TIMEOUT_SECONDS": "20", "STORAGE_CONFIG_DIR": str(config), "ROOT_MODEL_DIR": str(self.root),
            "ADAPTER_ENDPOINT": f"unix:{self.folder}/a.sock", "RUNTIME_ENDPOINT": self._triton.target,
            "PVC_MOUNTS_DIR": str(self.folder / "claims"),
        }  # fmt: skip
        self._adapter: Adapter = await self._stack.enter_async_context(
            build(Settings.from_env(environ), clients=MemoryClients(self.bucket).bucket, jitter=lambda: 0.0)
        )
        self.capacity_bytes = Settings.from_env(environ).capacity.capacity_bytes
        self._channel = grpc.insecure_channel(self._adapter.spi.addresses[0])
        self.runtime = spi_rpc.ModelRuntimeStub(self._channel)

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(START_SECONDS)
