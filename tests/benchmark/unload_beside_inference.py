"""
Whether unloads that wait disturb inference.

On the real Triton, with 500 light models loaded through the adapter, requests to another model are timed in turns: nothing else
goes on; unloads of 50 models wait for a request each that has not ended. An unload that waits asks Triton's index, which holds the lock
that inference needs.

A light model is an ensemble of one step, so that Triton starts no process for it. The step of those that are unloaded is a model
that answers nothing while a file is missing.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from adapter._pb import model_runtime_pb2 as spi
from tests.benchmark.amounts import Amounts
from tests.benchmark.report import OURS, Finding, Row
from tests.real import models
from tests.real.mesh import LONG_ENOUGH_SECONDS
from tests.real.pod import Pod
from tests.real.polls import until

MODELS, PENDING_SHARE = 500, 10
"""Loaded at most, and one of so many is unloaded."""
LEAST_ROUNDS = 4
AT_ONCE = 4
PAUSE_SECONDS = 0.002
"""Between two timed requests."""
TURN_SECONDS = 4.0
SETTLE_SECONDS = 0.3
LIGHT = """platform: "ensemble"
max_batch_size: 0
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
ensemble_scheduling { step [ {
  model_name: "sleeper" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }
} ] }
"""
SLEEPER = """import os
import time
import triton_python_backend_utils as triton

class TritonPythonModel:
    def execute(self, requests):
        while not os.path.exists({gate!r}):
            time.sleep(0.02)
        return [
            triton.InferenceResponse([triton.Tensor("Y", triton.get_input_tensor_by_name(request, "X").as_numpy())])
            for request in requests
        ]
"""
SLEEPER_CONFIG = """backend: "python"
input [ { name: "X" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { kind: KIND_CPU count: 1 } ]
"""
"""It must not write beside its files: Triton would load it again, and every ensemble over it, with the next load of one."""


class Rig:
    """The real Triton, the adapter, and the models on a mounted claim."""

    def __init__(self, stack: ExitStack) -> None:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        self.gate = folder / "go"
        volume, claim = folder / "volume", folder / "claims/claim"
        models.write({"config.pbtxt": LIGHT.encode()}, claim / "light")
        models.write(
            {"config.pbtxt": SLEEPER_CONFIG.encode(), "1/model.py": SLEEPER.format(gate=str(self.gate)).encode()}, claim / "sleeper"
        )
        models.write(models.affine(2, 1), claim / "other")
        (folder / "config").mkdir()
        (folder / "config/k").write_text(json.dumps({"type": "pvc", "name": "claim"}))
        env = {"PVC_MOUNTS_DIR": str(folder / "claims"), "CONTAINER_MEM_REQ_BYTES": "64GiB", "LOADING_CONCURRENCY": str(AT_ONCE)}
        pod = stack.enter_context(Pod(volume, folder / "config", env))
        self.mesh = pod.mesh
        self.mesh.start()
        for name in ("sleeper", "other"):
            self.mesh.load(name, "python", name, storage_key="k")

    def load(self, names: Iterable[str]) -> None:
        """Some at a time."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(lambda name: self.mesh.load(name, "triton", "light", storage_key="k"), names))

    def begin(self, name: str) -> Any:
        """A request that has no end while there is no gate."""
        request = self.mesh.infer_request(name, {"X": np.zeros(1, np.float32)})
        return self.mesh.triton.ModelInfer.future(request, timeout=LONG_ENOUGH_SECONDS)

    def begin_unload(self, name: str) -> Any:
        """It ends when the model's requests have."""
        return self.mesh.runtime.unloadModel.future(spi.UnloadModelRequest(modelId=name), timeout=LONG_ENOUGH_SECONDS)

    def freed(self, names: list[str]) -> int:
        """How many of them are being freed."""
        states = self.mesh.index()
        return sum(states.get(name) == "UNLOADING" for name in names)

    def timed(self, goes_on: Callable[[], bool]) -> list[float]:
        """Milliseconds of requests to the other model, one after the other."""
        request = self.mesh.infer_request("other", {"X": np.zeros(1, np.float32)})
        times = []
        while goes_on():
            began = time.perf_counter()
            self.mesh.triton.ModelInfer(request, timeout=LONG_ENOUGH_SECONDS)
            times.append((time.perf_counter() - began) * 1000)
            time.sleep(PAUSE_SECONDS)
        return times


def _turn(rig: Rig) -> list[float]:
    end = time.monotonic() + TURN_SECONDS
    return rig.timed(lambda: time.monotonic() < end)


def _pending(rig: Rig, names: list[str]) -> list[float]:
    """Times while unloads of these models wait for requests that have not ended."""
    rig.gate.unlink(missing_ok=True)
    requests = [rig.begin(name) for name in names]
    time.sleep(SETTLE_SECONDS)
    unloads = [rig.begin_unload(name) for name in names]
    until(lambda: rig.freed(names) == len(names), "all unloads wait")
    times = _turn(rig)
    rig.gate.touch()
    for call in (*requests, *unloads):
        call.result()
    return times


def beside(amounts: Amounts) -> Finding:
    """Inference on another model while unloads wait, on the real Triton."""
    finding = Finding("beside", "inference on another model while unloads wait, on the real Triton")
    models_loaded = min(MODELS, amounts.light_models)
    names = [f"light-{number}" for number in range(models_loaded)]
    some = names[: max(1, models_loaded // PENDING_SHARE)]
    quiet: list[float] = []
    waiting: list[float] = []
    with ExitStack() as stack:
        rig = Rig(stack)
        rig.load(names)
        for _ in range(max(LEAST_ROUNDS, amounts.rounds)):
            quiet += _turn(rig)
            waiting += _pending(rig, some)
            rig.load(some)
    case = f"99th percentile, {models_loaded} models loaded, {len(some)} unloads wait"
    for client, times in ((OURS, waiting), ("nothing else goes on", quiet)):
        finding.rows.append(Row("beside", case, client, statistics.quantiles(times, n=100)[98], "ms", False))
    finding.notes.append(f"Of {len(waiting)} requests, one after the other.")
    return finding
