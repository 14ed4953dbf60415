"""The adapter as a real process: `python -m adapter serve`, on free ports or a unix socket, killed at the end."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

import grpc
from grpc_health.v1 import health_pb2

from tests.real.children import TOP, Child, bare_environment
from tests.real.ports import free_ports, started_on

START_SECONDS = 30
STOP_SECONDS = 8
PORTS = ("ADAPTER_PORT", "METRICS_PORT")
MEASURED = {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
"""Of a run that measures which lines the adapter runs: a process that is killed tells nothing."""


class AdapterProcess:
    """A running adapter. Ports stay the same over `kill` and `start`, as in a pod."""

    def __init__(
        self,
        *,
        volume: Path,
        storage_config: Path,
        triton_target: str,
        env: Mapping[str, str],
        wait: bool = True,
        log_path: Path | None = None,
        wrapper: Sequence[str] = (),
        module: str = "adapter",
    ) -> None:
        """
        `env`: further settings, or others. Where it listens is chosen here unless they say so.

        `wrapper`: a command that becomes the one that follows it, as another user or in another place. `module`: what runs instead
        of `python -m adapter`, with the same words.

        Without `wait`, entering the context does not wait for an answer: for starts that fail.
        """
        self.settings = {
            **_settings_of(free_ports(len(PORTS))),
            "ROOT_MODEL_DIR": str(volume),
            "STORAGE_CONFIG_DIR": str(storage_config),
            "RUNTIME_ENDPOINT": triton_target,
            "CONTAINER_MEM_REQ_BYTES": "2GiB",
            "CACHE_MAX_BYTES": "0",  # what is left of a model can be seen then
            "LOG_FORMAT": "json",
            "REQUEST_ENDPOINTS_DENIED": "",  # stores of tests are on loopback, also those that only a request names
            **env,
        }
        self._keeps_ports = any(name in env for name in PORTS)
        self._wait = wait
        self._log_path = log_path
        self._wrapper = tuple(wrapper)
        self._module = module
        self._child: Child | None = None

    @property
    def channel_target(self) -> str:
        """For a gRPC channel, as ModelMesh would open it."""
        return self.settings.get("ADAPTER_ENDPOINT", f"127.0.0.1:{self.settings['ADAPTER_PORT']}")

    @property
    def metrics_url(self) -> str:
        """Below it: `/metrics`, `/healthz`, `/readyz`."""
        return f"http://127.0.0.1:{self.settings['METRICS_PORT']}"

    @property
    def pid(self) -> int:
        """Of the adapter."""
        return self._started().pid

    @property
    def log_path(self) -> Path:
        """What it has written."""
        return self._started().log_path

    def log_text(self) -> str:
        """Everything it has written so far."""
        return self._started().log_text()

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._started().returncode

    def launch(self) -> AdapterProcess:
        """Start without waiting."""
        self.kill()
        self._keeps_ports = True
        env = bare_environment() | MEASURED | {"PYTHONPATH": str(TOP)} | self.settings
        command = [*self._wrapper, sys.executable, "-m", self._module, "serve"]
        self._child = Child("adapter", command, env=env, log_path=self._log_path)
        return self

    def start(self) -> AdapterProcess:
        """
        Start, and return when it answers.

        A port that another program has taken meanwhile is waited for; before the first start others are chosen instead.

        Raises:
            PartError: it does not answer; with its log in short.
        """
        kept = [int(self.settings[name]) for name in PORTS] if self._keeps_ports else []
        started_on(kept, len(PORTS), self._start, r"[Aa]ddress already in use")
        return self

    def _start(self, ports: list[int]) -> None:
        self.settings |= _settings_of(ports)
        self.launch()
        self._started().wait_until(self.answers, "answering", START_SECONDS)

    def answers(self) -> bool:
        """Whether its gRPC health service answers, whatever it says."""
        options = [("grpc.enable_http_proxy", 0), ("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(self.channel_target, options=options) as channel:
            check = channel.unary_unary(
                "/grpc.health.v1.Health/Check",
                request_serializer=health_pb2.HealthCheckRequest.SerializeToString,
                response_deserializer=health_pb2.HealthCheckResponse.FromString,
            )
            try:
                check(health_pb2.HealthCheckRequest(), timeout=2)
            except grpc.RpcError:
                return False
        return True

    def wait(self, timeout_seconds: float) -> int:
        """Its exit code; raises PartError when it still runs after the time."""
        return self._started().wait(timeout_seconds)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, and do not wait."""
        self._started().signal(number)

    def kill(self) -> None:
        """`kill -9`; one that does not run is fine."""
        if self._child is not None:
            self._child.kill()

    def stop(self) -> None:
        """SIGTERM, and `kill -9` after a while: an end that keeps what was measured. One that does not run is fine."""
        if self._child is not None:
            self._child.stop(STOP_SECONDS)

    def __enter__(self) -> AdapterProcess:
        return self.start() if self._wait else self.launch()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if MEASURED:
            self.stop()
        else:
            self.kill()

    def _started(self) -> Child:
        assert self._child is not None, "the adapter was not started"
        return self._child


def _settings_of(ports: Sequence[int]) -> dict[str, str]:
    return {name: str(port) for name, port in zip(PORTS, ports, strict=True)}
