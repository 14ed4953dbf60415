"""
From the start of the process to the first answer to `runtimeStatus`.

Measures what a user has: the package lies in a folder of its own, its bytecode is written, and of what the environment of
development brings there is no rich, which structlog imports where it finds it. Beside it, in turns and without our package, the bare
imports of two libraries. A start ends with the first answer, whatever it says; the port is tried every two milliseconds, for
attempts of a gRPC channel are a tenth of a second apart at least. Triton is there before, and fake. Values are wall time.
"""

from __future__ import annotations

import compileall
import json
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmark.amounts import Amounts
from tests.benchmark.ours import storage_config
from tests.benchmark.report import OURS, Finding
from tests.benchmark.rig import START_SECONDS, BenchServer, Network
from tests.fakes.background_triton import BackgroundTriton
from tests.real.adapter import AdapterProcess
from tests.real.children import TOP, bare_environment
from tests.real.mesh import Mesh

IMPORTS = "import grpc, botocore.session"
GOAL = 1.5
"""Times the imports."""
LEAST_ROUNDS = 7
TRY_SECONDS = 0.002
ABSENT = ("rich",)
"""What users do not have, and what is imported where it is found."""


def start(amounts: Amounts) -> Finding:
    """Start to the first answer, beside the bare imports."""
    finding = Finding("start", "start to the first answer")
    imports: list[float] = []
    starts: list[float] = []
    with BenchServer(Network("loopback"), ["m/model.onnx=1KiB"]) as server, tempfile.TemporaryDirectory(prefix="bench-") as made:
        folder = Path(made)
        package = installed(TOP / "adapter", folder / "installed")
        (folder / "config").mkdir()
        (folder / "config/s3").write_text(json.dumps(storage_config(server.url)))
        with BackgroundTriton(folder / "volume/_triton_models") as triton:
            for _ in range(max(LEAST_ROUNDS, amounts.rounds)):
                imports.append(imported())
                starts.append(started(package, folder, triton.target))
    goal = [GOAL * seconds for seconds in imports]
    for client, seconds in ((OURS, starts), (f"{GOAL} × {IMPORTS}", goal)):
        finding.add("first answer, a key of S3", client, statistics.median(seconds), "s", seconds)
    return finding


def installed(package: Path, folder: Path) -> Path:
    """The package alone with its bytecode, as `pip install` leaves it; the folder is for Python's path."""
    shutil.copytree(package, folder / package.name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ABSENT:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError('{name} comes with the environment of development')\n")
    compileall.compile_dir(folder, quiet=1)
    return folder


def imported() -> float:
    """The bare imports, in a process of their own; seconds."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", IMPORTS], env=bare_environment(), check=True)
    return time.perf_counter() - began


def started(package: Path, folder: Path, triton_target: str) -> float:
    """Seconds of one adapter, without the leash of other tests: that is a Python, too. Raises RuntimeError: it does not listen."""
    path = {"PYTHONPATH": str(package), "PYTHONSAFEPATH": "1"}
    adapter = AdapterProcess(volume=folder / "volume", storage_config=folder / "config", triton_target=triton_target, env=path)
    environment = bare_environment() | adapter.settings
    with Mesh(adapter.channel_target, triton_target) as mesh:
        began = time.perf_counter()
        command = [sys.executable, "-m", "adapter", "serve"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            _wait_for_port(int(adapter.settings["ADAPTER_PORT"]))
            mesh.status()
            return time.perf_counter() - began
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
