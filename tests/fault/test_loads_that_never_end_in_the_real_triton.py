"""Python models whose `initialize` never returns, in the real Triton: the neighbours are served, and one restart heals all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import grpc
import numpy as np
import pytest

from tests.fault.pod import FaultPod
from tests.integration.conftest import get
from tests.real.models import affine
from tests.real.polls import until
from tests.real.s3 import S3Server

pytestmark = [pytest.mark.real_triton, pytest.mark.timeout(300)]

HANGS = b'''"""Never ends its load, for as long as its Triton lives."""

import os
import time


class TritonPythonModel:
    def initialize(self, args):
        parent = os.getppid()
        while os.getppid() == parent:
            time.sleep(0.1)

    def execute(self, requests):
        return []
'''
THREADS = 4


@pytest.fixture
def pod(tmp_path: Path, config_for_pods: Path, s3: S3Server, shown: Callable[..., None]) -> Iterator[FaultPod]:
    """One loading slot, and fewer places for loads than Triton has threads."""
    env = {
        "LOADING_CONCURRENCY": "1", "TRITON_LOAD_THREADS": str(THREADS), "LOADTIME_TIMEOUT": "6000", "UNLOAD_TIMEOUT_SECONDS": "5",
        "TRITON_SILENT_SECONDS": "4",
    }  # fmt: skip
    with FaultPod(tmp_path / "volume", config_for_pods, s3, partial(shown, "loads that never end: models"), **env) as pod:
        pod.mesh.start()
        yield pod


def leave(pod: FaultPod, name: str) -> None:
    """A load that Triton has, given up by its caller."""
    call = pod.begin(name, "hangs")
    call.cancel()


def health(pod: FaultPod) -> tuple[int, dict[str, object]]:
    status, body = get(f"{pod.adapter.metrics_url}/healthz/triton")
    return status, json.loads(body)


@pytest.mark.long
def test_three_loads_that_never_end_leave_the_slot_to_others_and_one_restart_heals_four(pod: FaultPod) -> None:
    """Takes half a minute: a load is stuck after two announced timeouts, and an honest one needs seconds on a busy machine."""
    pod.put("hangs", dict(affine(1, 1)) | {"1/model.py": HANGS})
    for number in range(THREADS - 1):
        leave(pod, f"x{number}")
    names = pod.load_many(2)
    assert pod.serving() == set(names)
    pod.mesh.unload("m1")
    with pytest.raises(grpc.RpcError, match="a load cannot be cancelled; the model was not freed within 5 s"):
        pod.mesh.unload("x0")
    del pod.loaded["m1"]
    leave(pod, "x3")

    with pytest.raises(grpc.RpcError, match=r"the loads of models x0 \(\d+ s\), x1 .*, x2 .*, x3 .* are still in Triton") as failed:
        pod.mesh.load("m1", "python", "adds1")
    assert "TRITON_LOAD_THREADS is 4" in str(failed.value)
    assert pod.serving() == {"m0"}, "what is loaded is served on"
    until(lambda: health(pod)[0] == 503, "only a restart helps", 60)
    assert str(health(pod)[1]["why"]).startswith("Triton can load nothing more: the loads of models x0 (")

    pod.adapter.kill()
    pod.adapter.start()
    assert health(pod)[0] == 200, "a new adapter gives Triton its time again"

    pod.triton.kill()
    until(lambda: health(pod)[0] == 200, "a closed port asks for no restart", 30)
    pod.triton.start()

    assert pod.serving() == {"m0"}
    pod.mesh.load("m1", "python", "adds1")
    assert float(pod.mesh.infer("m1", {"X": np.array([2.0], np.float32)})["Y"][0]) == 3.0
    status, told = health(pod)
    assert (status, told["stuck"], told["why"], told["live"]) == (200, [], None, True)
    for name in ("m0", "m1", "x0", "x1", "x2", "x3"):
        pod.mesh.unload(name)
    pod.row("Triton restarted because all load threads hung", tried=1, survived=1, note="m0 restored by itself")
