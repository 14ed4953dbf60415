"""Loopback only, one adapter per endpoint, and a sentence when it cannot be had."""

import socket
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from grpc import aio

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb.model_runtime_pb2_grpc import ModelRuntimeStub
from adapter.errors import ListenError
from adapter.units import Endpoint
from tests.fakes.lifecycle import FakeLifecycle
from tests.unit.spi.serving import listening


async def answers(target: str) -> bool:
    async with aio.insecure_channel(target) as channel:
        answer = await ModelRuntimeStub(channel).unloadModel(pb.UnloadModelRequest(modelId="m1"), timeout=5)
    return answer == pb.UnloadModelResponse()


async def test_localhost_is_both_loopback_addresses() -> None:
    """IPv4 is a must, and first; IPv6 is there where the machine has it."""
    async with listening(FakeLifecycle(), Endpoint(host="localhost", port=0)) as server:
        assert server.addresses[0].startswith("127.0.0.1:")
        assert len({address.rpartition(":")[2] for address in server.addresses}) == 1
        for address in server.addresses:
            assert await answers(address)


async def test_host_that_is_not_ours_fails_in_one_sentence() -> None:
    """TEST-NET-1 belongs to no machine."""
    with pytest.raises(ListenError, match=r"192\.0\.2\.1:8085 cannot be used: cannot assign requested address"):
        async with listening(FakeLifecycle(), Endpoint(host="192.0.2.1", port=8085)):
            pytest.fail("it listens")


async def test_socket_file_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    """A killed adapter leaves one."""
    path = tmp_path / "mm.sock"
    with closing(socket.socket(socket.AF_UNIX)) as dead:
        dead.bind(str(path))

    async with listening(FakeLifecycle(), Endpoint(socket=path)):
        assert await answers(f"unix:{path}")


async def test_file_in_the_way_is_refused_and_left_alone(tmp_path: Path) -> None:
    """Only sockets are replaced."""
    path = tmp_path / "mm.sock"
    path.write_text("precious")

    with pytest.raises(ListenError, match=r"gRPC failed to bind it: may we write to .*, and is nothing there but a socket"):
        async with listening(FakeLifecycle(), Endpoint(socket=path)):
            pytest.fail("it listens")

    assert path.read_text() == "precious"


async def test_reflection_only_on_request() -> None:
    """Off by default; on, it lists the services."""

    async def list_services(address: str) -> bytes:
        async with aio.insecure_channel(address) as channel:
            call = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")(iter([b"\x3a\x01*"]))
            return bytes(await call.read())

    async with listening(FakeLifecycle()) as server:
        with pytest.raises(aio.AioRpcError) as caught:
            await list_services(server.addresses[0])
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    async with listening(FakeLifecycle(), reflection=True) as server:
        listed = await list_services(server.addresses[0])
        assert b"mmesh.ModelRuntime" in listed
        assert b"grpc.health.v1.Health" in listed
