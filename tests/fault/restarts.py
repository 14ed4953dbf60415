"""Adapters, one after the other, over one volume, one fake Triton and one store."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from adapter._pb import model_runtime_pb2 as spi
from adapter.journal import NAME as JOURNAL
from adapter.wiring import Adapter
from tests.builders import load_request
from tests.fakes.s3_proxy import S3Proxy
from tests.fakes.triton import FakeTriton
from tests.fault.conftest import BUCKET, running, until
from tests.real.s3 import S3Server


def content(version: int = 1) -> bytes:
    return f"class TritonPythonModel: pass  # take-over {version}".encode()


class Lives:
    """Adapters over one volume; what outlives them."""

    def __init__(self, triton: FakeTriton, s3: S3Server, proxy: S3Proxy, environ: dict[str, str]) -> None:
        self.triton = triton
        self.proxy = proxy
        self._s3 = s3
        self._environ = environ
        self._stack = AsyncExitStack()
        self._before = 0
        self._pulled = 0
        self.runtime: Any = None
        self.adapter: Adapter

    def put(self, version: int = 1) -> None:
        self._s3.put_folder(BUCKET, "taken-over", {"1/model.py": content(version)})

    async def start(self) -> None:
        """The next adapter; its take-over goes on in the background."""
        self._before, self._pulled = len(self.triton.journal), self.proxy.object_bytes
        self.adapter, self.runtime = await self._stack.enter_async_context(running(self._environ))

    async def end(self) -> None:
        """Without a drain: what is under way ends where it is, and Triton goes on."""
        await self._stack.aclose()

    async def die(self) -> None:
        """As `kill -9`: nothing that the adapter writes while it ends is in the journal."""
        journal = self.adapter.volume.cache_dir / JOURNAL
        written = journal.read_bytes()
        await self.end()
        journal.write_bytes(written)

    async def restart(self, meanwhile: Callable[[], object] = lambda: None, *, with_triton: bool = False) -> None:
        """The next adapter does not get an answer from Triton until `answer`."""
        await self.end()
        if with_triton:
            await self.triton.restart()
        meanwhile()
        self.triton.freeze()
        await self.start()

    async def answer(self, *calls: Any) -> None:
        """Triton answers again, after the adapter has begun with these calls."""
        for _ in range(3):
            await self.runtime.predictModelSize(spi.PredictModelSizeRequest(modelId="x", modelType="mt:python", modelPath="nowhere"))
        assert not any(call.done() for call in calls), "they wait for the take-over"
        self.triton.thaw()

    def load(self, model_id: str) -> Any:
        return self.runtime.loadModel(load_request(model_id, "python", "taken-over"))

    def unload(self, model_id: str) -> Any:
        return self.runtime.unloadModel(spi.UnloadModelRequest(modelId=model_id))

    def size(self, model_id: str) -> Any:
        return self.runtime.modelSize(spi.ModelSizeRequest(modelId=model_id))

    def folder(self, model_id: str) -> Path:
        return self.triton.repository / model_id

    def asked(self, name: str) -> list[str]:
        """What Triton was asked to do with the model since the last start of an adapter."""
        return [call for call, asked in self.triton.journal[self._before :] if asked == name]

    @property
    def pulled_bytes(self) -> int:
        return self.proxy.object_bytes - self._pulled

    async def has(self, *names: str) -> None:
        """Exactly these are in memory, once each, and nothing else is placed; nothing is under way."""

        def is_so() -> bool:
            placed = {path.name for path in self.triton.repository.iterdir()}
            return self.triton.in_memory == dict.fromkeys(names, 1) and placed == set(names)

        await until(is_so, f"{names} are loaded, and nothing else")
        await until(lambda: not self.adapter.lifecycle.registry.operations(), "nothing is under way")
        assert is_so()
