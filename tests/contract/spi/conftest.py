"""The endpoint under test: a running adapter named by `--spi-endpoint`, or one in this process."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable

import pytest
from grpc import aio

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb.model_runtime_pb2_grpc import ModelRuntimeStub
from adapter.units import parse_endpoint
from tests.fakes.lifecycle import MODEL_PATH, FakeLifecycle
from tests.unit.spi.serving import listening

CONNECT_SECONDS = 10


@pytest.fixture
async def channel(request: pytest.FixtureRequest) -> AsyncIterator[aio.Channel]:
    """A channel to the endpoint under test, connected as ModelMesh's is: its deadlines are for answers."""
    given = request.config.getoption("--spi-endpoint")
    if given:
        async with aio.insecure_channel(parse_endpoint(given).target) as channel:
            await asyncio.wait_for(channel.channel_ready(), CONNECT_SECONDS)
            yield channel
        return
    async with listening(FakeLifecycle()) as server, aio.insecure_channel(server.addresses[0]) as channel:
        await asyncio.wait_for(channel.channel_ready(), CONNECT_SECONDS)
        yield channel


@pytest.fixture
def runtime(channel: aio.Channel) -> ModelRuntimeStub:
    """The SPI of the endpoint under test."""
    return ModelRuntimeStub(channel)


@pytest.fixture
def may_purge(request: pytest.FixtureRequest) -> None:
    """Skip where runtimeStatus could unload somebody's models."""
    if request.config.getoption("--spi-endpoint") and not request.config.getoption("--purge"):
        pytest.skip("runtimeStatus unloads every model of the endpoint; allow it with --purge")


@pytest.fixture
async def some_model(request: pytest.FixtureRequest, runtime: ModelRuntimeStub) -> AsyncIterator[Callable[[], pb.LoadModelRequest]]:
    """Makes requests for a model that can be loaded, each with an id of its own; all are unloaded at the end."""
    option = request.config.getoption
    path = option("--spi-model-path")
    if option("--spi-endpoint") and not path:
        pytest.skip("no model to load on the endpoint; name one with --spi-model-path")
    made: list[pb.LoadModelRequest] = []

    def make() -> pb.LoadModelRequest:
        made.append(
            pb.LoadModelRequest(
                modelId=f"sanity-{secrets.token_hex(6)}",
                modelType=option("--spi-model-type"),
                modelPath=path or MODEL_PATH,
                modelKey=option("--spi-model-key"),
            )
        )
        return made[-1]

    yield make
    for model in made:
        await runtime.unloadModel(pb.UnloadModelRequest(modelId=model.modelId))
