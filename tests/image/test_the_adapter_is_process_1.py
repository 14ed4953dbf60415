"""The image has no init: the adapter is process 1 of its container, for which the kernel drops signals without a handler."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.real.children import TOP, Child, bare_environment
from tests.real.ports import free_ports

UNSHARE = ["unshare", "--pid", "--fork", "--kill-child"]
SIGNALLED_WHILE_IMPORTING = """
import os, signal, sys
from adapter import cli

class Sender:
    def find_spec(self, name, path, target=None):
        if name == "adapter.app":
            print("signalled", os.getpid(), flush=True)
            os.kill(os.getpid(), signal.SIGTERM)

sys.meta_path.insert(0, Sender())
sys.exit(cli.main(["serve"]))
"""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    if shutil.which("unshare") is None or subprocess.run([*UNSHARE, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs unshare, and the right to make a namespace of processes")
    port, metrics = map(str, free_ports(2))
    settings = {"CONTAINER_MEM_REQ_BYTES": "2Gi", "ADAPTER_PORT": port, "METRICS_PORT": metrics, "ROOT_MODEL_DIR": str(tmp_path)}
    return bare_environment() | {"PYTHONPATH": str(TOP)} | settings


def test_a_signal_that_comes_while_modules_are_imported_is_not_lost(environment: dict[str, str]) -> None:
    child = Child("adapter", [*UNSHARE, sys.executable, "-c", SIGNALLED_WHILE_IMPORTING], env=environment)
    try:
        assert child.wait(30) == 128 + signal.SIGTERM
    finally:
        child.kill()
    assert "signalled 1\n" in child.log_text()
    assert "adapter.started" not in child.log_text()
