"""The real parts themselves: what the other tests take for granted."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tritonclient.grpc import service_pb2

from tests.real.children import TOP, bare_environment, is_alive
from tests.real.mesh import Mesh
from tests.real.models import sleeper, write
from tests.real.polls import until
from tests.real.triton import SHM, Triton

OWNER = """
import os, signal, sys, threading, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a run in the background ignores it
from pathlib import Path
from tests.real.mesh import Mesh
from tests.real.s3 import S3Server
from tests.real.triton import Triton
from tritonclient.grpc import service_pb2
started = []
def start():  # in a thread that ends: the kernel's watch must not end with it
    started.extend([S3Server().start(), Triton(Path(sys.argv[1])).start()])
thread = threading.Thread(target=start)
thread.start()
thread.join()
s3, triton = started
mesh = Mesh("127.0.0.1:1", triton.grpc_target)
mesh.triton.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name="m"))
print(s3._started().pid, triton.pid, flush=True)
time.sleep(60)
"""


def wait_until_gone(*pids: int) -> None:
    until(lambda: not any(map(is_alive, pids)), f"the processes {pids} have ended")


def stubs_of(pid: int) -> list[int]:
    """Python stubs that a Triton has started."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return [int(child) for task in tasks for child in (task / "children").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT], ids=["kill", "terminate", "Ctrl-C"])
def test_parts_end_with_their_owner(tmp_path: Path, number: signal.Signals) -> None:
    """Whatever ends a test run, its servers and Triton's stubs end too."""
    write(sleeper(), tmp_path / "m")
    env = bare_environment() | {"PYTHONPATH": str(TOP)}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(tmp_path)], env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as owner:
        assert owner.stdout is not None
        pids = [int(word) for word in owner.stdout.readline().split()]
        stubs = stubs_of(pids[1])
        owner.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            owner.wait(10)
        has_ended = owner.poll() is not None
        owner.kill()

    assert (len(pids), len(stubs), has_ended) == (2, 1, True)
    wait_until_gone(*pids, *stubs)


def test_a_killed_triton_leaves_no_stub_and_no_shared_memory(tmp_path: Path) -> None:
    """Also when somebody else killed it: the next start clears up."""
    write(sleeper(), tmp_path / "m")
    with Triton(tmp_path) as triton, Mesh("127.0.0.1:1", triton.grpc_target) as mesh:
        _load(mesh, "m")
        first, stubs = triton.server_id, stubs_of(triton.pid)
        regions = list(SHM.glob(f"{triton.shm_prefix}*"))
        os.kill(triton.pid, signal.SIGKILL)
        target = triton.grpc_target
        triton.start()

        assert (len(stubs), len(regions)) == (1, 1)
        wait_until_gone(*stubs)
        assert not [region for region in regions if region.exists()]
        assert (triton.grpc_target, triton.server_id != first) == (target, True)


def _load(mesh: Mesh, name: str) -> None:
    mesh.triton.RepositoryModelUnload(service_pb2.RepositoryModelUnloadRequest(model_name=name))
    mesh.triton.RepositoryModelLoad(service_pb2.RepositoryModelLoadRequest(model_name=name), timeout=60)
