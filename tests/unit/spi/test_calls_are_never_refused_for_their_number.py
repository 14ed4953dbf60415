"""A refusal for concurrency would brand a model as failed: only the size of a message has a bound."""

from __future__ import annotations

import asyncio
import resource
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc
import pytest
from grpc import aio

from adapter._pb import model_runtime_pb2 as pb
from adapter._pb.model_runtime_pb2_grpc import ModelRuntimeStub
from adapter.spi.listen import MAX_MESSAGE_BYTES
from adapter.units import Endpoint
from tests.fakes.lifecycle import FakeLifecycle
from tests.fault.conftest import until
from tests.real import polls
from tests.real.children import TOP
from tests.unit.spi.serving import LOOPBACK, listening, serving

CALLS = 1000
LONG_ENOUGH_SECONDS = 60
STORM = """
import sys
from collections import Counter
import grpc
from adapter._pb import model_runtime_pb2 as pb, model_runtime_pb2_grpc as rpc
with grpc.insecure_channel(sys.argv[1]) as channel:
    grpc.channel_ready_future(channel).result(60)
    unload = rpc.ModelRuntimeStub(channel).unloadModel
    calls = [unload.future(pb.UnloadModelRequest(modelId=f"m{number}"), timeout=60) for number in range(int(sys.argv[2]))]
    print("sent", flush=True)
    print(*sorted(Counter(call.code().name for call in calls).items()), flush=True)
"""


def under_way(port: int) -> int:
    """Bytes that were sent from or to this port and that the other side has not taken; gRPC takes them in a thread of its own."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    ours = [row[4] for row in rows if f"{port:04X}" in (row[1].partition(":")[2], row[2].partition(":")[2])]
    return sum(int(count, 16) for queues in ours for count in queues.split(":"))


async def test_calls_that_came_while_the_loop_was_busy_are_answered() -> None:
    """gRPC's own bounds of what waits for the loop (1,000, 3,000) are for servers whose callers may try elsewhere."""
    calls, lifecycle = 5 * CALLS, FakeLifecycle()
    async with listening(lifecycle) as server:
        command = [sys.executable, "-c", STORM, server.addresses[0], str(calls)]
        with subprocess.Popen(command, cwd=TOP, stdout=subprocess.PIPE, text=True) as storm:
            try:
                assert storm.stdout is not None
                await until(lambda: lifecycle.unloads, "the first call")
                said = storm.stdout.readline()  # keeps the loop
                port = int(server.addresses[0].rpartition(":")[2])
                polls.until(lambda: not under_way(port), "what was sent has arrived")  # keeps it on
                said += await asyncio.to_thread(storm.stdout.read)
            finally:
                storm.kill()

    assert said == f"sent\n('OK', {calls})\n"


async def test_a_message_has_a_bound_and_costs_nobody_else_anything() -> None:
    lifecycle = FakeLifecycle()
    async with serving(lifecycle) as runtime:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await runtime.unloadModel(pb.UnloadModelRequest(modelId="m" * (MAX_MESSAGE_BYTES + 1)))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert "larger than max" in (refused.value.details() or "")

        with pytest.raises(grpc.aio.AioRpcError) as judged:
            await runtime.loadModel(pb.LoadModelRequest(modelId="m", modelPath="x" * (MAX_MESSAGE_BYTES - 1000), modelKey="{}"))
        assert judged.value.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED
        assert await runtime.unloadModel(pb.UnloadModelRequest(modelId="other")) == pb.UnloadModelResponse()

    assert lifecycle.unloads == ["other"]


@contextmanager
def descriptors(most: int) -> Iterator[None]:
    """This process may have so many files and connections open."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


FLOOD = """
import socket, sys
held = []
sys.stdin.readline()
for _ in range(int(sys.argv[3])):
    one = socket.socket(getattr(socket, sys.argv[1]))
    one.setblocking(False)
    try:
        one.connect(eval(sys.argv[2]))
    except BlockingIOError:
        pass
    held.append(one)
print("open", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("kind", ["port", "socket"])
async def test_a_flood_of_connections_does_not_stop_modelmeshs(kind: str, tmp_path: Path) -> None:
    """More than we have descriptors for: what ModelMesh has open serves on, and when the flood ends it can connect again."""
    lifecycle = FakeLifecycle()
    endpoint = LOOPBACK if kind == "port" else Endpoint(socket=tmp_path / "a.sock")
    async with listening(lifecycle, endpoint) as server:
        target = server.addresses[0]
        place = ("AF_INET", ("127.0.0.1", int(target.split(":")[1]))) if kind == "port" else ("AF_UNIX", str(tmp_path / "a.sock"))
        command = [sys.executable, "-c", FLOOD, place[0], repr(place[1]), "400"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as flood:
            assert flood.stdin is not None and flood.stdout is not None
            try:
                async with aio.insecure_channel(target) as channel, asyncio.timeout(LONG_ENOUGH_SECONDS):
                    runtime = ModelRuntimeStub(channel)
                    await runtime.unloadModel(pb.UnloadModelRequest(modelId="before"))
                    with socket.socket() as highest, descriptors(highest.fileno() + 50):
                        flood.stdin.write("\n")
                        flood.stdin.flush()
                        assert await asyncio.to_thread(flood.stdout.readline) == "open\n"
                        for number in range(50):
                            await runtime.unloadModel(pb.UnloadModelRequest(modelId=f"m{number}"))
            finally:
                flood.kill()
        async with aio.insecure_channel(target, options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            runtime = ModelRuntimeStub(channel)
            await runtime.unloadModel(pb.UnloadModelRequest(modelId="after"), wait_for_ready=True, timeout=LONG_ENOUGH_SECONDS)

    assert lifecycle.unloads == ["before", *(f"m{number}" for number in range(50)), "after"]
