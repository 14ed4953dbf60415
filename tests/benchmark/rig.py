"""What is measured, and where: the server with its manners, clients as processes of their own, and whether the bytes are right."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
import ssl
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType

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
    has_whole_pages: bool = False
    """For a client that never asks for a second page."""


@dataclass(frozen=True)
class Place:
    """Where clients write, and what runs the ones with a venv of their own."""

    folder: Path
    peers_python: Path = PEERS_PYTHON
    threads: int = 8

    def new(self) -> Path:
        """An empty folder. Whoever fills it removes it; the end of this process does where a signal was quicker."""
        return Path(tempfile.mkdtemp(prefix=_own_prefix(self.folder), dir=self.folder))


@functools.cache
def _own_prefix(folder: Path) -> str:
    """What the names of this process begin with there; what is left of them goes with its end."""
    prefix = f"bench-{os.getpid()}-"

    def remove() -> None:
        for path in folder.glob(f"{prefix}*"):
            shutil.rmtree(path, ignore_errors=True)

    atexit.register(remove)
    return prefix


class BenchServer:
    """`tests.benchmark.server` as a process of its own."""

    def __init__(self, network: Network, specs: Sequence[str]) -> None:
        self.network = network
        self.items = {item.key: item for spec in (*specs, WARM) for item in items_of(spec)}
        self._specs = [*specs, WARM]
        self._made = tempfile.TemporaryDirectory(prefix="bench-server-", ignore_cleanup_errors=True)
        self._folder = Path(self._made.name)
        self._child: Child | None = None
        self.url = ""

    @property
    def ca(self) -> str:
        """Whom to trust."""
        return str(self._folder / "ca.pem") if self.network.is_tls else ""

    def counts(self) -> dict[str, int]:
        """What has been asked for since the start."""
        context = ssl.create_default_context(cafile=self.ca) if self.ca else None
        handlers = [urllib.request.ProxyHandler({}), *([urllib.request.HTTPSHandler(context=context)] if context else [])]
        with urllib.request.build_opener(*handlers).open(f"{self.url}/-/counts", timeout=10) as answer:
            found: dict[str, int] = json.load(answer)
        return found

    def job(self, prefix: str, place: Place, **options: object) -> Job:
        """Pull everything that begins so."""
        keys = [(item.key, item.size_bytes) for item in self.items.values() if item.key.startswith(prefix)]
        made = Job(url=self.url, ca=self.ca, keys=keys, prefix=prefix, folder=str(place.new()), threads=place.threads)
        return replace(made, **options)  # type: ignore[arg-type] # as the fields are

    def __enter__(self) -> BenchServer:
        network = self.network
        words: list[str] = [f"--latency-ms={network.latency_ms}", f"--connection-mb={network.connection_mb}", f"--port={free_ports(1)[0]}"]
        words += [f"--tls={self._folder}"] if network.is_tls else []
        words += ["--whole-pages"] if network.has_whole_pages else []
        command = [sys.executable, "-m", "tests.benchmark.server", *words, *self._specs]
        self._child = child = Child("bench-server", command, env=child_environment())
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


class Unavailable(Exception):
    """A client cannot run here. One sentence."""


@dataclass(frozen=True)
class Client:
    """Somebody who pulls."""

    name: str
    run: Callable[[Job, Place], Figures]
    is_available: Callable[[Place], bool] = field(default=lambda _: True)


def child_environment() -> dict[str, str]:
    """Of what we start."""
    return {**bare_environment(), "PYTHONPATH": str(TOP), "PYTHONDONTWRITEBYTECODE": "1"}


def ran(command: Sequence[str | Path]) -> Figures:
    """A child that measures itself. Raises RuntimeError with the end of what it has said, TimeoutExpired."""
    words = [str(word) for word in command]
    with subprocess.Popen(words, cwd=TOP, env=child_environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        try:
            said, complained = child.communicate(timeout=RUN_SECONDS)
        except BaseException:
            child.kill()
            child.wait()  # else it writes on into a folder that is being removed
            raise
    if child.returncode or not said.strip():
        raise RuntimeError(f"{' '.join(words[:5])} ended with {child.returncode}: {complained[-1500:]}")
    return Figures(**json.loads(said.strip().splitlines()[-1]))


def adapter(job: Job, _place: Place) -> Figures:
    """Our `Store`."""
    return ran([sys.executable, "-m", "tests.benchmark.ours", job.to_json()])


def _peer(name: str) -> Client:
    def run(job: Job, place: Place) -> Figures:
        python = place.peers_python if name in OF_THEIR_VENV else sys.executable
        return ran([python, "-m", "tests.benchmark.peers", name, job.to_json()])

    return Client(name, run, lambda place: name not in OF_THEIR_VENV or place.peers_python.exists())


OURS = Client("ours", adapter)
PEERS: tuple[Client, ...] = (
    _peer("threads"),
    Client("rclone", lambda job, _: rclone(job), lambda _: rclone_program().exists()),
    *(_peer(name) for name in OF_THEIR_VENV),
)


def measured(client: Client, server: BenchServer, job: Job, place: Place, *, is_checked: bool) -> Figures:
    """One run: what it cost, what it asked for, and with `is_checked` whether the bytes are right. Leaves nothing."""
    try:
        before = server.counts()
        figures = client.run(job, place)
        figures.counts = {kind: count - before[kind] for kind, count in server.counts().items()}
        if is_checked:
            check(client.name, server, job, figures)
    finally:
        shutil.rmtree(job.folder, ignore_errors=True)
    return figures


def check(name: str, server: BenchServer, job: Job, figures: Figures) -> None:
    """Raise WrongBytes for a file of another length, or with other bytes at its ends or in between."""
    for key, size in job.keys:
        path = _path_of(name, job, key, figures)
        item = server.items[key]
        if path is None or not path.is_file() or path.stat().st_size != size:
            raise WrongBytes(f"{name}: {key} is missing or has another length")
        with path.open("rb") as file:
            for at in sorted({*range(0, size, _STEP_BYTES), max(0, size - _EDGE_BYTES)}):
                file.seek(at)
                if file.read(_EDGE_BYTES) != item.content(at, min(_EDGE_BYTES, size - at)):
                    raise WrongBytes(f"{name}: {key} has other bytes at {at}")


def _path_of(name: str, job: Job, key: str, figures: Figures) -> Path | None:
    if name == "rclone" and len(job.keys) > 1:
        return Path(job.folder) / "tree" / key.removeprefix(job.prefix.rstrip("/") + "/")
    roots: dict[str, str] | None = figures.more.get("roots")
    if roots is None:
        return Path(target(job, key))
    for model, root in roots.items():
        if key == model or key.startswith(f"{model}/"):
            return Path(root) / (key.removeprefix(model).lstrip("/") or key.rpartition("/")[2])
    return None
