"""What is measured, and where: the server with its manners, clients as processes of their own, and whether the bytes are right."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.benchmark.gauge import MIB, Figures, Job
from tests.benchmark.peers import target
from tests.benchmark.rclone import rclone, rclone_program
from tests.benchmark.server.stock import items_of
from tests.real.children import PARTS, TOP, Child, bare_environment
from tests.real.ports import free_ports

RUN_SECONDS = 300
START_SECONDS = 20
PEERS_PYTHON = PARTS / "peers" / "bin" / "python"
WARM = "warm=64KiB"
OF_THEIR_VENV = ("awscrt", "pycurl")
_EDGE_BYTES = 4096
_STEP_BYTES = 64 * MIB + 12_345


@dataclass(frozen=True)
class Network:
    """How far away the server is."""

    name: str
    latency_ms: float = 0
    connection_mb: float = 0
    is_tls: bool = False


class BenchServer:
    """`tests.benchmark.server` as a process of its own."""

    def __init__(self, network: Network, specs: Sequence[str]) -> None:
        self._specs = [*specs, WARM]
        self.items = {item.key: item for spec in self._specs for item in items_of(spec)}
        self._made = tempfile.TemporaryDirectory(prefix="bench-server-", ignore_cleanup_errors=True)
        self.ca = f"{self._made.name}/ca.pem" if network.is_tls else ""
        """File with the authority to trust."""
        words = [f"--latency-ms={network.latency_ms}", f"--connection-mb={network.connection_mb}", f"--port={free_ports(1)[0]}"]
        words += [f"--tls={self._made.name}"] if network.is_tls else []
        self._command = [sys.executable, "-m", "tests.benchmark.server", *words, *self._specs]
        self._child: Child | None = None
        self.url = ""

    def job(self, prefix: str, folder: Path | None = None, **options: Any) -> Job:
        """Pull everything that begins so, into a new folder below this one."""
        keys = [(item.key, item.size_bytes) for item in self.items.values() if item.key.startswith(prefix)]
        own = {"url": self.url, "ca": self.ca, "keys": keys, "prefix": prefix}
        return Job(**{**own, "folder": tempfile.mkdtemp(prefix="bench-", dir=folder), **options})

    def __enter__(self) -> BenchServer:
        self._child = child = Child("bench-server", self._command, env=child_environment())
        try:
            child.wait_until(lambda: "://" in child.log_text() and child.log_text().endswith("\n"), "listening", START_SECONDS)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        self.url = child.log_text().splitlines()[-1]
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._child is not None:
            self._child.kill()
        self._made.cleanup()


class WrongBytes(Exception):
    """A client has not got what the server has, so its figures mean nothing."""


@dataclass(frozen=True)
class Client:
    """Pulls."""

    name: str
    run: Callable[[Job], Figures]
    is_available: Callable[[], bool] = lambda: True


def child_environment() -> dict[str, str]:
    """Of what we start."""
    return {**bare_environment(), "PYTHONPATH": str(TOP), "PYTHONDONTWRITEBYTECODE": "1"}


def ran(command: Sequence[str | Path]) -> Figures:
    """A child that measures itself. Raises RuntimeError with the end of what it has said, TimeoutExpired."""
    done = subprocess.run(command, cwd=TOP, env=child_environment(), capture_output=True, text=True, timeout=RUN_SECONDS, check=False)
    if done.returncode or not done.stdout.strip():
        raise RuntimeError(f"{' '.join(map(str, command[:5]))} ended with {done.returncode}: {done.stderr[-1500:]}")
    return Figures(**json.loads(done.stdout.strip().splitlines()[-1]))


def _peer(name: str) -> Client:
    python = PEERS_PYTHON if name in OF_THEIR_VENV else Path(sys.executable)
    return Client(name, lambda job: ran([python, "-m", "tests.benchmark.peers", name, job.to_json()]), python.exists)


OURS = Client("ours", lambda job: ran([sys.executable, "-m", "tests.benchmark.ours", job.to_json()]))
PEERS: tuple[Client, ...] = (
    _peer("threads"),
    Client("rclone", rclone, lambda: rclone_program().exists()),
    *(_peer(name) for name in OF_THEIR_VENV),
)


def measured(client: Client, server: BenchServer, job: Job, *, is_checked: bool) -> Figures:
    """One run: what it cost, and with `is_checked` whether the bytes are right. Leaves nothing."""
    try:
        figures = client.run(job)
        if is_checked:
            check(client.name, server, job, figures)
    finally:
        shutil.rmtree(job.folder, ignore_errors=True)
    return figures


def check(name: str, server: BenchServer, job: Job, figures: Figures) -> None:
    """Raise WrongBytes for a file of another length, or with other bytes at its ends or in between."""
    for key, size in job.keys:
        path = _path_of(job, key, figures)
        item = server.items[key]
        if path is None or not path.is_file() or path.stat().st_size != size:
            raise WrongBytes(f"{name}: {key} is missing or has another length")
        with path.open("rb") as file:
            for at in sorted({*range(0, size, _STEP_BYTES), max(0, size - _EDGE_BYTES)}):
                file.seek(at)
                if file.read(_EDGE_BYTES) != item.content(at, min(_EDGE_BYTES, size - at)):
                    raise WrongBytes(f"{name}: {key} has other bytes at {at}")


def _path_of(job: Job, key: str, figures: Figures) -> Path | None:
    roots: dict[str, str] | None = figures.more.get("roots")
    if roots is None:
        return Path(target(job, key))
    for model, root in roots.items():
        if key == model or key.startswith(f"{model}/"):
            return Path(root) / (key.removeprefix(model).lstrip("/") or key.rpartition("/")[2])
    return None
