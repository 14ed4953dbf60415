"""The client on a real channel: what each failure of a call means. The server says what the real ones were heard to say."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest
import pytest_asyncio

from adapter.stubs import service_pb2 as pb
from adapter.triton.client import CallRefused, PortClosed, TritonAway, TritonClient, TritonDied
from tests.fakes.triton import FakeTriton
from tests.real.ports import free_ports

SERVICE = "/inference.GRPCInferenceService/"
Answer = bytes | tuple[grpc.StatusCode, str]


class Peer(grpc.GenericRpcHandler):
    """Answers each method with bytes or a status, or hangs; keeps the requests."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.requests: dict[str, bytes] = {}
        self.called = asyncio.Event()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        method = details.method.removeprefix(SERVICE)

        async def answer(request: bytes, context: Any) -> bytes:
            self.requests[method] = request
            self.called.set()
            if method not in self.answers:
                await asyncio.get_running_loop().create_future()
            told = self.answers[method]
            if isinstance(told, tuple):
                await context.abort(*told)
            return told

        return grpc.unary_unary_rpc_method_handler(answer)


@pytest.fixture
def peer() -> Peer:
    return Peer()


@pytest_asyncio.fixture
async def client(peer: Peer, tmp_path: Path) -> AsyncIterator[TritonClient]:
    """On a unix socket, as Triton names it: `<path>:<port>`."""
    server = grpc.aio.server(handlers=[peer])
    server.add_insecure_port(f"unix:{tmp_path}/t.sock:8001")
    await server.start()
    client = TritonClient(f"unix:{tmp_path}/t.sock:8001")
    yield client
    await client.close()
    await server.stop(None)


CALLS: dict[str, Callable[[TritonClient], Any]] = {
    "ServerLive": lambda client: client.live(1.0),
    "ServerMetadata": lambda client: client.metadata(),
    "RepositoryIndex": lambda client: client.index(),
    "RepositoryModelLoad": lambda client: client.load("m"),
    "RepositoryModelUnload": lambda client: client.unload("m"),
    "ModelReady": lambda client: client.ready("m"),
    "ModelStatistics": lambda client: client.reported_bytes("m"),
}
EVERY_CALL = pytest.mark.parametrize("method", CALLS)


def fails_with(code: grpc.StatusCode, text: str) -> dict[str, Answer]:
    return dict.fromkeys(CALLS, (code, text))


@EVERY_CALL
async def test_an_address_without_a_server_is_away(method: str, tmp_path: Path) -> None:
    """The call was never sent; the cause is the last part of gRPC's chain."""
    client = TritonClient(f"unix:{tmp_path}/none.sock")

    with pytest.raises(TritonAway, match=r"^No such file or directory$") as away:
        await CALLS[method](client)

    assert not isinstance(away.value, TritonDied)
    await client.close()


@EVERY_CALL
@pytest.mark.parametrize(
    ("code", "text"),
    [
        (grpc.StatusCode.UNAVAILABLE, "Stream removed (Socket closed)"),
        (grpc.StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer"),
        (grpc.StatusCode.UNAVAILABLE, "words that we never heard"),
        (grpc.StatusCode.UNKNOWN, "Stream removed"),
        (grpc.StatusCode.INTERNAL, "RST_STREAM closed stream. HTTP/2 error code: INTERNAL_ERROR"),
        (grpc.StatusCode.CANCELLED, "RST_STREAM closed stream. HTTP/2 error code: CANCEL"),
    ],
)
async def test_a_connection_that_breaks_is_a_death(client: TritonClient, peer: Peer, method: str, code: grpc.StatusCode, text: str) -> None:
    """Triton may have taken the call: so says also what we do not know."""
    peer.answers = fails_with(code, text)

    with pytest.raises(TritonDied) as died:
        await CALLS[method](client)

    assert str(died.value) == text


@EVERY_CALL
async def test_a_closed_port_is_told_apart(method: str) -> None:
    """No process listens: what was there has gone."""
    [port] = free_ports(1)
    client = TritonClient(f"127.0.0.1:{port}")

    with pytest.raises(PortClosed, match=r"^Connection refused$"):
        await CALLS[method](client)

    await client.close()


async def test_an_index_that_cannot_be_parsed_is_a_failure(client: TritonClient, peer: Peer) -> None:
    """A directory name that is not UTF-8 makes one: it must not look like an empty index."""
    peer.answers["RepositoryIndex"] = b"\x0a\x04\x0a\x02\xff\xfe"

    with pytest.raises(CallRefused, match="cannot be parsed"):
        await client.index()


async def test_an_unload_takes_the_composing_models_along(client: TritonClient, peer: Peer) -> None:
    """Otherwise an ensemble leaves them in memory."""
    peer.answers["RepositoryModelUnload"] = b""

    await client.unload("m")

    request = pb.RepositoryModelUnloadRequest.FromString(peer.requests["RepositoryModelUnload"])
    assert request.model_name == "m"
    assert request.parameters["unload_dependents"].bool_param is True


async def test_a_proxy_of_the_environment_is_not_used(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Users set proxies for S3."""
    for name in ("http_proxy", "https_proxy", "grpc_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    for name in ("no_proxy", "no_grpc_proxy"):
        monkeypatch.delenv(name, raising=False)
    async with FakeTriton(tmp_path) as triton:
        client = TritonClient(triton.target)

        assert await client.metadata()

        await client.close()


def test_the_stubs_come_without_numpy() -> None:
    """14 MiB and a tenth of a second; the real package can be imported afterwards and shares the messages."""
    program = """
import sys
from adapter import stubs
from adapter.triton import client
assert "numpy" not in sys.modules and "tritonclient.grpc" not in sys.modules
import tritonclient.grpc
assert tritonclient.grpc.service_pb2 is stubs.service_pb2
assert tritonclient.grpc.InferInput
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", program], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
