"""
The liveness probe of Triton's container: the manifest's own command, run against servers that answer, hang or are away.

Only the ports are others. The kubelet kills a container after three probes that fail, one after the other.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from adapter.telemetry.http import TelemetryServer
from adapter.triton.server import Health
from tests.fakes.hell import answering
from tests.fakes.raw_server import Hell
from tests.real.ports import free_ports
from tests.real.triton import Triton

MANIFEST = Path(__file__).parents[2] / "deploy" / "manifests" / "base" / "servingruntime.yaml"
ADAPTER, TRITON = "127.0.0.1:9464/healthz/triton", "127.0.0.1:8000/v2/health/live"
HEALTHY = Health(is_live=True, silent_seconds=0.2, load_threads=4, stuck=(), why=None)
SICK = Health(
    is_live=False, silent_seconds=70.0, load_threads=4, stuck=(), why="Triton accepts connections and has answered nothing for 70 s"
)


@pytest.fixture(scope="module")
def probe() -> dict[str, Any]:
    containers = yaml.safe_load(MANIFEST.read_text())["spec"]["containers"]
    return next(container for container in containers if container["name"] == "triton")["livenessProbe"]


class Kubelet:
    """Runs the probe's command as the kubelet does in Triton's container."""

    def __init__(self, probe: dict[str, Any], adapter_port: int, triton_port: int) -> None:
        *shell, script = probe["exec"]["command"]
        for there, here in ((ADAPTER, adapter_port), (TRITON, triton_port)):
            assert script.count(there) == 1
            host, _, path = there.partition("/")
            script = script.replace(there, f"{host.partition(':')[0]}:{here}/{path}")
        self._command = [*shell, script]
        self._timeout_seconds = probe["timeoutSeconds"]
        self.output = ""

    def is_green(self) -> bool:
        """One probe. A proxy of the container's environment is none for loopback; the command ends within its time."""
        env = {"PATH": os.environ["PATH"], "http_proxy": "http://127.0.0.1:1", "HTTP_PROXY": "http://127.0.0.1:1"}
        ran = subprocess.run(self._command, env=env, capture_output=True, text=True, timeout=self._timeout_seconds, check=False)
        self.output = ran.stdout + ran.stderr
        return ran.returncode == 0


@contextmanager
def adapter(health: Health, clock: Callable[[], float] = time.monotonic) -> Iterator[int]:
    """The adapter's own HTTP server."""
    server = TelemetryServer(port=0, readiness=lambda: None, triton=lambda: health, clock=clock)
    with closing(server):
        yield server.port


@contextmanager
def web_server(status: int) -> Iterator[int]:
    """Answers everything so."""
    with Hell(answering(status, {"Content-Length": 0})) as server:
        yield server.port


@contextmanager
def hung() -> Iterator[int]:
    """Accepts, and never answers: as a process that was stopped."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def closed() -> int:
    """No process listens: starting, dead, or `METRICS_PORT=0`."""
    return free_ports(1)[0]


@pytest.mark.parametrize("triton", ["answers", "hangs"])
def test_an_explicit_503_is_red_and_its_reason_is_in_the_event(probe: dict[str, Any], triton: str) -> None:
    """Whatever Triton says of itself: one whose load threads all hang is live."""
    with adapter(SICK) as port, web_server(200) if triton == "answers" else hung() as other:
        kubelet = Kubelet(probe, port, other)

        assert not kubelet.is_green()
    assert "has answered nothing for 70 s" in kubelet.output


@pytest.mark.parametrize("adapter_is", ["away", "hung", "404", "500", "stuck", "an HTTP server that says 502"])
def test_an_adapter_that_says_nothing_of_triton_kills_no_triton(probe: dict[str, Any], adapter_is: str) -> None:
    """Away is what a METRICS_PORT of 0 looks like, too. 404: an adapter of an earlier version."""
    with ExitStack() as stack:
        if adapter_is == "away":
            port = closed()
        elif adapter_is == "hung":
            port = stack.enter_context(hung())
        elif adapter_is == "stuck":
            stopped = iter([0.0, *[60.0] * 10])
            port = stack.enter_context(adapter(SICK, lambda: next(stopped)))
        else:
            port = stack.enter_context(web_server({"404": 404, "500": 500}.get(adapter_is, 502)))
        triton = stack.enter_context(web_server(200))

        assert Kubelet(probe, port, triton).is_green()


@pytest.mark.parametrize("triton", ["dead", "hung", "not live"])
def test_without_the_adapter_triton_speaks_for_itself(probe: dict[str, Any], triton: str) -> None:
    """As any other server without a sidecar."""
    with hung() if triton == "hung" else web_server(400) as port:
        assert not Kubelet(probe, closed(), closed() if triton == "dead" else port).is_green()


def test_a_triton_that_starts_beside_a_healthy_adapter_is_green(probe: dict[str, Any]) -> None:
    """Its port is closed, or it answers slowly while its index is asked: the adapter knows that no restart helps."""
    with adapter(HEALTHY) as port:
        assert Kubelet(probe, port, closed()).is_green()


def test_the_slowest_probe_ends_within_its_time(probe: dict[str, Any]) -> None:
    """Adapter and Triton both hang. The kubelet counts one that does not as a failure without words."""
    with hung() as port, hung() as triton:
        kubelet = Kubelet(probe, port, triton)
        began = time.monotonic()

        assert not kubelet.is_green()

    assert time.monotonic() - began < probe["timeoutSeconds"]
    assert "Operation timed out" in kubelet.output


@pytest.mark.real_triton
def test_the_real_triton_speaks_for_itself(probe: dict[str, Any], tmp_path: Path) -> None:
    """Without an adapter; killed, it is red."""
    with Triton(tmp_path / "models") as triton:
        kubelet = Kubelet(probe, closed(), triton.http_port)
        assert kubelet.is_green()
        triton.kill()
        assert not kubelet.is_green()
