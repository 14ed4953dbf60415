"""grpc.health.v1 beside the SPI: asking has no effect on any model."""

import grpc
import pytest
from grpc import aio
from grpc_health.v1 import health_pb2 as pb
from grpc_health.v1.health_pb2_grpc import HealthStub


async def test_the_adapter_is_alive(channel: aio.Channel) -> None:
    """The empty service is the process itself."""
    for _ in range(2):
        assert (await HealthStub(channel).Check(pb.HealthCheckRequest(), timeout=5)).status == pb.HealthCheckResponse.SERVING


@pytest.mark.parametrize("service", ["ready", "mmesh.ModelRuntime"])
async def test_readiness_says_why_not(service: str, channel: aio.Channel) -> None:
    """READY, or NOT_SERVING with a reason."""
    call = HealthStub(channel).Check(pb.HealthCheckRequest(service=service), timeout=5)

    answer = await call
    reasons = [value for key, value in await call.trailing_metadata() if key == "reason"]

    assert (answer.status, bool(reasons)) in {(pb.HealthCheckResponse.SERVING, False), (pb.HealthCheckResponse.NOT_SERVING, True)}


async def test_unknown_service_is_not_found(channel: aio.Channel) -> None:
    """As the health protocol demands."""
    with pytest.raises(aio.AioRpcError) as caught:
        await HealthStub(channel).Check(pb.HealthCheckRequest(service="unknown"), timeout=5)

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND
