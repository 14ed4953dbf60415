"""A real grpc.aio server around one lifecycle, for tests of what travels over the wire."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

from grpc import aio

from adapter._pb.model_runtime_pb2_grpc import ModelRuntimeStub
from adapter.model import RESERVED_IDS, ModelSpec
from adapter.serving import LoadedModel
from adapter.settings import read_group
from adapter.settings.capacity import CapacitySettings
from adapter.spi.listen import SpiServer, listen
from adapter.spi.servicer import ModelRuntime
from adapter.units import Endpoint
from tests.fakes.lifecycle import FakeLifecycle

LOOPBACK = Endpoint(host="127.0.0.1", port=0)


def capacity(**variables: str) -> CapacitySettings:
    """Settings of a runtime with 2 GiB."""
    return read_group(CapacitySettings, {"CONTAINER_MEM_REQ_BYTES": "2Gi", **variables})


class ScriptedLifecycle(FakeLifecycle):
    """Its load does what the test says."""

    def __init__(self, load: Callable[[ModelSpec], Awaitable[Any]]) -> None:
        super().__init__()
        self._load = load

    async def load(self, spec: ModelSpec) -> LoadedModel:
        return await self._load(spec) or LoadedModel(size_bytes=10_000, max_concurrency=0)


@asynccontextmanager
async def listening(lifecycle: FakeLifecycle, endpoint: Endpoint = LOOPBACK, *, reflection: bool = False) -> AsyncIterator[SpiServer]:
    """The SPI over this lifecycle."""
    runtime = ModelRuntime(lifecycle=lifecycle, capacity=capacity, reserved_ids=RESERVED_IDS)
    server = await listen(endpoint=endpoint, runtime=runtime, readiness=lambda: None, reflection=reflection)
    try:
        yield server
    finally:
        await server.stop(0)


@asynccontextmanager
async def serving(lifecycle: FakeLifecycle) -> AsyncIterator[ModelRuntimeStub]:
    """The same, asked through a real channel."""
    async with listening(lifecycle) as server, aio.insecure_channel(server.addresses[0]) as channel:
        yield ModelRuntimeStub(channel)
