"""
From the start of the process to the first answer to `runtimeStatus` and to READY, and what is resident then.

Measures what a user has: the package lies in a folder of its own, its bytecode is written, and of what the environment of
development brings there is no rich, which structlog imports where it finds it. Beside it, in turns and without our package, the bare
imports of two libraries. A start ends with the first answer, whatever it says; the port is tried every two milliseconds, for
attempts of a gRPC channel are a tenth of a second apart at least. Triton is there before, and fake. Values are wall time; CPU is that of
the whole process until the same moment.
"""

from __future__ import annotations

import compileall
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from adapter._pb import model_runtime_pb2 as spi
from tests.benchmark.amounts import Amounts
from tests.benchmark.gauge import cpu_seconds_of, status_mib
from tests.benchmark.report import OURS, Finding, Row
from tests.benchmark.rig import START_SECONDS, BenchServer, Network
from tests.fakes.background_triton import BackgroundTriton
from tests.real.adapter import AdapterProcess
from tests.real.children import TOP, bare_environment
from tests.real.mesh import Mesh

IMPORTS = "import grpc, botocore.session"
GOAL = 1.5
"""Times the imports."""
MOST_MIB = 90.0
LEAST_ROUNDS = 7
TRY_SECONDS = 0.002
IDLE_SECONDS = 3.0
ABSENT = ("rich",)
"""What users do not have, and what is imported where it is found."""


@dataclass(frozen=True)
class Start:
    """Of one process; seconds."""

    answered: float
    """Until the first answer."""
    cpu: float
    """Until then."""
    ready: float = 0.0
    """Until the first READY."""
    resident_mib: float = 0.0
    """IDLE_SECONDS later, when the clients of the mounted secret have been made."""


def start(amounts: Amounts) -> Finding:
    """Start-up and idle memory, beside the bare imports."""
    finding = Finding("start", "start to the first answer and to the first READY, and idle memory")
    imports: list[Start] = []
    with BenchServer(Network("loopback"), ["m/model.onnx=1KiB"]) as server, tempfile.TemporaryDirectory(prefix="bench-") as made:
        folder = Path(made)
        package = installed(TOP / "adapter", folder / "installed")
        keys = {"a key of S3": {"s3": s3_key(server.url)}, "no key": {}}
        starts: dict[str, list[Start]] = {case: [] for case in keys}
        with BackgroundTriton(folder / "volume/_triton_models") as triton:
            for _ in range(max(LEAST_ROUNDS, amounts.rounds)):
                imports.append(imported())
                for case, secret in keys.items():
                    starts[case].append(started(package, folder / "volume", secret, triton.target))
    for case, found in starts.items():
        finding.rows += [
            _row(f"first answer, {case}", OURS, [each.answered for each in found], [each.cpu for each in found]),
            _row(f"first answer, {case}", f"{GOAL} × {IMPORTS}", [GOAL * i.answered for i in imports], [GOAL * i.cpu for i in imports]),
            _row(f"first READY, {case}", OURS, [each.ready for each in found], None),
        ]
        memory = [each.resident_mib for each in found]
        finding.rows += [
            Row("start", f"idle memory, {case}", OURS, statistics.median(memory), "MiB", False, min(memory), max(memory)),
            Row("start", f"idle memory, {case}", "goal", MOST_MIB, "MiB", False),
        ]
    finding.notes.append(f"Idle memory is that of {IDLE_SECONDS:g} s after the first READY.")
    return finding


def s3_key(url: str) -> dict[str, str]:
    """An entry of the secret."""
    account = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
    return {"type": "s3", "endpoint_url": url, "bucket": "models", **account}


def installed(package: Path, folder: Path) -> Path:
    """The package alone with its bytecode, as `pip install` leaves it; the folder is for Python's path."""
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ABSENT:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('{name} comes with the environment of development')\n")
    compileall.compile_dir(folder, quiet=1)
    return folder


def imported() -> Start:
    """The bare imports, in a process of their own."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", IMPORTS], env=bare_environment())
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"`{IMPORTS}` ended with {process.returncode}")
    return Start(answered=time.perf_counter() - began, cpu=used.ru_utime + used.ru_stime)


def started(package: Path, volume: Path, secret: dict[str, dict[str, str]], triton_target: str) -> Start:
    """One adapter, from the start of its process until it is READY. Raises RuntimeError: it does not listen."""
    with tempfile.TemporaryDirectory(prefix="bench-") as config:
        for name, entry in secret.items():
            Path(config, name).write_text(json.dumps(entry))
        path = {"PYTHONPATH": str(package), "PYTHONSAFEPATH": "1"}
        adapter = AdapterProcess(volume=volume, storage_config=Path(config), triton_target=triton_target, env=path)
        with Mesh(adapter.channel_target, triton_target) as mesh:
            began = time.perf_counter()
            with _running(bare_environment() | adapter.settings) as pid:
                _wait_for_port(int(adapter.settings["ADAPTER_PORT"]))
                is_ready = mesh.status().status == spi.RuntimeStatusResponse.READY
                answered, cpu = time.perf_counter() - began, cpu_seconds_of(pid)
                if not is_ready:
                    mesh.start()
                ready = time.perf_counter() - began
                time.sleep(IDLE_SECONDS)
                return Start(answered, cpu, ready, status_mib("VmRSS", pid))


@contextmanager
def _running(environment: dict[str, str]) -> Iterator[int]:
    """The process itself, without the leash of other tests: that is a Python, too. It ends with the context."""
    process = subprocess.Popen(
        [sys.executable, "-m", "adapter", "serve"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process.pid
    finally:
        process.kill()
        process.wait()


def _wait_for_port(port: int) -> None:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with socket.socket() as peer:
            if peer.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(TRY_SECONDS)
    raise RuntimeError(f"the adapter does not listen after {START_SECONDS} s")


def _row(case: str, client: str, seconds: list[float], cpu: list[float] | None) -> Row:
    used = None if cpu is None else statistics.median(cpu)
    return Row("start", case, client, statistics.median(seconds), "s", False, min(seconds), max(seconds), cpu=used)
