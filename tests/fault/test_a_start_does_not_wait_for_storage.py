"""ModelMesh has its first answer before a storage client is made, and whatever making one is like, loads go on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from adapter import wiring
from adapter._pb import model_runtime_pb2 as spi
from adapter.storage.secret.merging import StorageConfig
from adapter.workers import Workers
from tests.builders import load_request
from tests.fakes.memory_bucket import MemoryBucket
from tests.fakes.triton import FakeTriton
from tests.fault.conftest import Hold, environ_of, running, until, until_ready

KEYS = ("k1", "k2")
LOADED = "l"
"""The storage key of the models that are loaded meanwhile."""


class Clients:
    """One bucket in memory. What its clients are made with runs when one is, ahead of any load."""

    def __init__(self, make: Callable[[], None]) -> None:
        self.bucket_in_memory = MemoryBucket()
        self.bucket_in_memory.put("m/1/model.py", b"class TritonPythonModel: pass")
        self.warmed: list[str] = []
        self._make = make
        self._threads = Workers("making", 1)

    async def bucket(self, config: StorageConfig) -> MemoryBucket:
        if repr(LOADED) not in config.label:
            await self._threads.run(lambda _: self._make())
            self.warmed.append(config.label)
        return self.bucket_in_memory


@asynccontextmanager
async def started(tmp_path: Path, clients: Clients) -> AsyncIterator[Any]:
    """The stub of an adapter that has just started, with a Triton that answers."""
    secrets = tmp_path / "config"
    secrets.mkdir()
    for key in (*KEYS, LOADED):
        (secrets / key).write_text(json.dumps({"type": "s3", "bucket": "b"}))
    async with (
        FakeTriton(tmp_path / "volume/_triton_models") as triton,
        running(environ_of(tmp_path, triton.target), clients=clients.bucket) as (_, runtime),
    ):
        yield runtime


async def loaded_and_unloaded(runtime: Any) -> None:
    await runtime.loadModel(load_request("m", "python", "m", storage_key=LOADED), timeout=60)
    await runtime.unloadModel(spi.UnloadModelRequest(modelId="m"), timeout=60)


async def test_a_client_that_hangs_in_the_making_holds_up_neither_the_first_answer_nor_a_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    making = Hold()
    clients = Clients(making)
    async with started(tmp_path, clients) as runtime:
        await until_ready(runtime)
        await making.reached()
        await until_ready(runtime)
        await loaded_and_unloaded(runtime)
        assert clients.warmed == []
        making.release()
        await until(lambda: len(clients.warmed) == len(KEYS), "the clients are made")


async def test_clients_are_made_where_modelmesh_asks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An adapter that restarts alone is asked for loads, never for its status."""
    monkeypatch.setattr(wiring, "FIRST_ANSWER_SECONDS", 0.01)
    clients = Clients(lambda: None)
    async with started(tmp_path, clients):
        await until(lambda: len(clients.warmed) == len(KEYS), "the clients are made")


async def test_no_client_is_made_before_the_first_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wiring, "FIRST_ANSWER_SECONDS", 1000.0)
    clients = Clients(lambda: None)
    async with started(tmp_path, clients) as runtime:
        await loaded_and_unloaded(runtime)
        assert clients.warmed == []
        await until_ready(runtime)
        await until(lambda: len(clients.warmed) == len(KEYS), "the clients are made")


def test_a_start_imports_no_library_of_a_store() -> None:
    """The first client of a store imports it: none is needed before ModelMesh has its first answer."""
    program = "import adapter.app, sys; print(*sorted(name for name in sys.modules if '.' not in name))"
    imported = set(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split())
    assert "grpc" in imported
    assert imported.isdisjoint({"botocore", "boto3", "urllib3", "azure", "requests", "aiohttp", "numpy"})
