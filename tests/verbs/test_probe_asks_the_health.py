"""One line and the truth, from outside the process, whatever answers or does not."""

import asyncio
import contextlib
import io
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import pytest

from adapter import cli
from adapter.spi.listen import listen
from adapter.spi.servicer import ModelRuntime
from adapter.telemetry.http import TelemetryServer
from adapter.units import Endpoint, parse_endpoint
from tests.fakes.lifecycle import FakeLifecycle
from tests.unit.spi.serving import capacity


@asynccontextmanager
async def running(problems: list[str]) -> AsyncIterator[Endpoint]:
    """An adapter that is not ready for these reasons."""
    server = await listen(
        endpoint=Endpoint(host="127.0.0.1", port=0),
        runtime=ModelRuntime(lifecycle=FakeLifecycle(), capacity=capacity, reserved_ids=frozenset()),
        readiness=lambda: "; ".join(problems) or None,
        reflection=False,
    )
    try:
        yield parse_endpoint(server.addresses[0])
    finally:
        await server.stop(0)


async def ask(endpoint: Endpoint, *, ready: bool = False, timeout_seconds: float = 10) -> tuple[bool, str]:
    """Whether the exit code is 0, and the line; the probe blocks, so it gets a thread."""
    out = io.StringIO()
    words = ["probe", *(["--ready"] if ready else []), "--timeout", str(timeout_seconds)]
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(out):
        patched.setenv("ADAPTER_ENDPOINT", str(endpoint))
        code = await asyncio.to_thread(cli.main, words)
    return code == cli.OK, out.getvalue().removesuffix("\n")


async def test_alive_and_ready_are_different_questions() -> None:
    """A kubelet must not restart an adapter because Triton is away. Metadata holds printable ASCII only; the reason is for people."""
    problems: list[str] = []
    async with running(problems) as endpoint:
        assert await ask(endpoint) == (True, "alive")
        assert await ask(endpoint, ready=True) == (True, "ready")
        problems.append("Triton is away: 100 % für\nnichts − 語 😀")
        assert await ask(endpoint) == (True, "alive")
        assert await ask(endpoint, ready=True) == (False, "not ready: Triton is away: 100 % für nichts − 語 😀")


async def test_no_process_listens() -> None:
    """The cause in words, not gRPC's list of addresses."""
    with closing(socket.socket()) as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]

    assert await ask(Endpoint(host="127.0.0.1", port=port)) == (False, f"no answer from 127.0.0.1:{port}: connection refused")


async def test_no_socket_is_there(tmp_path: Path) -> None:
    """The path is named."""
    path = tmp_path / "mm.sock"

    assert await ask(Endpoint(socket=path)) == (False, f"no answer from unix:{path}: no such file or directory")


@pytest.mark.parametrize(
    ("problem", "line"), [(None, "200 ready"), ("Triton does not answer\nat all", "503 not ready: Triton does not answer at all")]
)
def test_without_an_interface_for_modelmesh_it_is_asked_over_http(
    problem: str | None, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """No proxy of the environment is asked."""
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("ADAPTER_PORT", "0")
    with closing(TelemetryServer(port=0, readiness=lambda: problem)) as server:
        monkeypatch.setenv("METRICS_PORT", str(server.port))
        assert cli.main(["probe"]) == 0
        assert cli.main(["probe", "--ready"]) == (problem is not None)
    assert cli.main(["probe"]) == 1
    alive, ready, away = capsys.readouterr().out.splitlines()
    assert (alive, ready) == (f"127.0.0.1:{server.port}: 200 alive", f"127.0.0.1:{server.port}: {line}")
    assert away == f"127.0.0.1:{server.port}: no answer: [Errno 111] Connection refused"


async def test_silent_peer_is_given_up_on() -> None:
    """A port that accepts and says nothing."""
    with closing(socket.socket()) as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        endpoint = Endpoint(host="127.0.0.1", port=silent.getsockname()[1])

        assert await ask(endpoint, timeout_seconds=0.1) == (False, f"no answer from {endpoint}: nothing within 0.1 s")


async def test_other_server_is_not_taken_for_an_adapter() -> None:
    """A gRPC server without the health service."""
    from grpc import aio  # noqa: PLC0415 - only here

    server = aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()

    is_well, line = await ask(Endpoint(host="127.0.0.1", port=port))
    await server.stop(0)

    assert not is_well
    assert line.startswith(f"no answer from 127.0.0.1:{port}: unimplemented")


async def test_what_another_server_says_cannot_spoil_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reason in one line, without control characters."""
    monkeypatch.setattr("adapter.spi.listen.shown", lambda text: text)
    async with running(["no\x1b[2J\nready\x9b31m"]) as endpoint:
        assert await ask(endpoint, ready=True) == (False, "not ready: no [2J ready 31m")


UNNEEDED = ("boto3", "structlog", "google.protobuf", "prometheus_client", "tritonclient", "http.client", "adapter.spi")


@pytest.mark.parametrize("module", UNNEEDED)
def test_probe_does_not_import_what_it_does_not_need(module: str) -> None:
    """It starts every few seconds."""
    code = f"import sys; from adapter import cli; cli.main(['probe', '--timeout', '0.01']); sys.exit({module!r} in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False, stdout=subprocess.DEVNULL).returncode == 0
