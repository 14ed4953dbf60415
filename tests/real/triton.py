"""
The real Triton as a context manager: started on free ports of loopback, killed at the end.

Killing is enough: nothing in it is worth a graceful end, and what a killed Triton leaves (python
stubs, their regions in /dev/shm) is taken away here.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import secrets
import signal
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

from tests.real import install
from tests.real.children import Child, PartError, is_alive
from tests.real.polls import until
from tests.real.ports import started_on

START_SECONDS = 60
EXIT_TIMEOUT_SECONDS = 5
SHM = Path("/dev/shm")
SHM_PREFIX = "mmta_parts"


class Triton:
    """
    A Triton over one model repository.

    Ports and `grpc_target` stay the same over `kill` and `start`, as in a pod; the server id is new each time unless it has a name.
    """

    def __init__(
        self,
        repository: Path,
        *,
        explicit: bool = True,
        completes: bool = False,
        grpc_address: str | None = None,
        extra_args: Sequence[str] = (),
        log_path: Path | None = None,
        name: str | None = None,
        ports: Sequence[int] = (),
        wrapper: Sequence[str] = (),
    ) -> None:
        """
        `completes`: whether it completes the config of a model, as Triton does by default. It starts each python model twice then, and
        takes a second longer.

        `grpc_address`: None for a port of loopback, or `unix:/folder/t.sock` (the file is then `t.sock:8001`).

        `name`: the server id of each start, instead of a new one. `ports`: those of gRPC, HTTP and metrics, instead of free ones.
        `wrapper`: words of a program that becomes Triton.
        """
        self.repository = repository
        self._explicit = explicit
        self._completes = completes
        self._grpc_address = grpc_address
        self._extra_args = tuple(extra_args)
        self._wrapper = tuple(wrapper)
        self._log_path = log_path
        self._ports = list(ports)
        self._name = name
        self._child: Child | None = None
        self.shm_prefix = ""
        """Its regions in /dev/shm."""
        self.server_id = ""
        """`--id`: the name in its ServerMetadata."""

    @property
    def grpc_target(self) -> str:
        """For a gRPC channel."""
        return f"{self._grpc_address}:8001" if self._grpc_address else f"127.0.0.1:{self._ports[0]}"

    @property
    def grpc_port(self) -> int:
        """The port of gRPC. With a unix socket there is none."""
        assert self._grpc_address is None
        return self._ports[0]

    @property
    def http_port(self) -> int:
        """V2 REST."""
        return self._ports[1]

    @property
    def metrics_port(self) -> int:
        """Prometheus."""
        return self._ports[2]

    @property
    def pid(self) -> int:
        """Of `tritonserver` itself."""
        return self._started().pid

    @property
    def log_path(self) -> Path:
        """What it has written."""
        return self._started().log_path

    @property
    def is_running(self) -> bool:
        """Whether the program runs; it may still be starting."""
        return self._child is not None and self._child.returncode is None

    def start(self) -> Triton:
        """
        Start, and return when it is live.

        Raises:
            PartError: it ended, or is not live within a minute; with its log in short.
            CannotRunError: it is not installed and cannot be.
        """
        install.install()
        self.kill()
        self.repository.mkdir(parents=True, exist_ok=True)
        return started_on(self._ports, 3, self._start, r"[Aa]ddress already in use|failed to start .* service")

    def stop(self) -> int:
        """SIGTERM, as Kubernetes does, then SIGKILL after its exit timeout. The answer is its exit code."""
        try:
            return self._started().stop(EXIT_TIMEOUT_SECONDS + 10)
        finally:
            _sweep(self.shm_prefix)

    def kill(self) -> None:
        """`kill -9`, the stubs too; one that does not run is fine."""
        if self._child is not None:
            self._child.kill()
            _sweep(self.shm_prefix)

    def freeze(self) -> None:
        """SIGSTOP; returns when each thread stands still, for on a busy machine they run on for a moment."""
        os.kill(self.pid, signal.SIGSTOP)
        until(lambda: _stands_still(self.pid), "all threads have stopped")

    def thaw(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def is_live(self) -> bool:
        """Whether this very server answers: another server may have taken the port."""
        connection = http.client.HTTPConnection("127.0.0.1", self.http_port, timeout=2)
        with contextlib.closing(connection), contextlib.suppress(OSError, ValueError, http.client.HTTPException):
            connection.request("GET", "/v2")
            return bool(json.loads(connection.getresponse().read())["name"] == self.server_id)
        return False

    def __enter__(self) -> Triton:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()

    def _started(self) -> Child:
        assert self._child is not None, "Triton was not started"
        return self._child

    def _start(self, ports: list[int]) -> Triton:
        self._ports = ports
        _sweep_orphans()
        self.server_id = self._name or f"triton-{secrets.token_hex(4)}"
        self.shm_prefix = f"{SHM_PREFIX}_{os.getpid()}_{secrets.token_hex(3)}_"
        self._child = Child("triton", self.command(), env=install.environment(), log_path=self._log_path)
        try:
            self._child.wait_until(self.is_live, "live", START_SECONDS)
        except PartError:
            self.kill()
            raise
        return self

    def command(self) -> list[str | Path]:
        """The words that start it, once its ports are known."""
        grpc, rest, metrics = self._ports
        loopback = "127.0.0.1"
        return [
            *self._wrapper,
            install.server(),
            f"--id={self.server_id}",
            f"--model-repository={self.repository}",
            f"--backend-directory={install.BACKENDS}",
            f"--backend-config=python,shm-region-prefix-name={self.shm_prefix}",
            f"--backend-config=onnxruntime,shm-region-prefix-name={self.shm_prefix}",
            *(["--model-control-mode=explicit"] if self._explicit else []),
            *([] if self._completes else ["--disable-auto-complete-config"]),
            "--strict-readiness=false",
            "--model-load-thread-count=8",
            f"--exit-timeout-secs={EXIT_TIMEOUT_SECONDS}",
            "--allow-sagemaker=false",
            f"--grpc-address={self._grpc_address or loopback}",
            f"--grpc-port={8001 if self._grpc_address else grpc}",
            f"--http-address={loopback}",
            f"--http-port={rest}",
            f"--metrics-address={loopback}",
            f"--metrics-port={metrics}",
            *self._extra_args,
        ]


def _stands_still(pid: int) -> bool:
    try:
        return all("\nState:\tT" in status.read_text() for status in Path(f"/proc/{pid}/task").glob("*/status"))
    except OSError:  # a thread has just ended
        return False


def _sweep(prefix: str) -> None:
    for region in SHM.glob(f"{prefix}*"):
        region.unlink(missing_ok=True)


def _sweep_orphans() -> None:
    """
    Regions of test runs that were killed themselves: their names hold the id of a process that is gone.

    The stubs of such a run notice within seconds that their Triton is gone, and end.
    """
    for region in SHM.glob(f"{SHM_PREFIX}_*"):
        owner = region.name.removeprefix(f"{SHM_PREFIX}_").split("_")[0]
        if owner.isdigit() and not is_alive(int(owner)):
            region.unlink(missing_ok=True)
