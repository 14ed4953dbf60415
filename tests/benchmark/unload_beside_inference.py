"""
Whether unloads that wait disturb inference.

On the real Triton, with 500 light models loaded through the adapter, requests to another model are timed in turns: nothing else
goes on; unloads of 50 models wait for a request each that has not ended. An unload that waits asks Triton's index, which holds the lock
that inference needs. The step of the light models answers nothing while a file is missing.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from adapter._pb import model_runtime_pb2 as spi
from tests.benchmark import light
from tests.benchmark.amounts import Amounts
from tests.benchmark.report import OURS, Finding
from tests.real import models
from tests.real.mesh import LONG_ENOUGH_SECONDS, Mesh
from tests.real.polls import until

MODELS, PENDING_SHARE = 500, 10
"""Loaded at most, and one of so many is unloaded."""
LEAST_ROUNDS = 4
AT_ONCE = 4
PAUSE_SECONDS = 0.002
"""Between two timed requests."""
TURN_SECONDS = 4.0
SETTLE_SECONDS = 0.3
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
SLEEPER_CONFIG = f'backend: "python"\n{light.TENSORS}instance_group [ {{ kind: KIND_CPU count: 1 }} ]\n'
"""It must not write beside its files: Triton would load it again, and every ensemble over it, with the next load of one."""


def _turn(mesh: Mesh) -> list[float]:
    """Milliseconds of requests to the other model, one after the other."""
    request = mesh.infer_request("other", {"X": np.zeros(1, np.float32)})
    times, end = [], time.monotonic() + TURN_SECONDS
    while time.monotonic() < end:
        began = time.perf_counter()
        mesh.triton.ModelInfer(request, timeout=LONG_ENOUGH_SECONDS)
        times.append((time.perf_counter() - began) * 1000)
        time.sleep(PAUSE_SECONDS)
    return times


def _pending(mesh: Mesh, gate: Path, names: list[str]) -> list[float]:
    """Times while unloads of these models wait for requests that have not ended."""
    gate.unlink(missing_ok=True)
    requests = [mesh.infer_request(name, {"X": np.zeros(1, np.float32)}) for name in names]
    calls = [mesh.triton.ModelInfer.future(request, timeout=LONG_ENOUGH_SECONDS) for request in requests]
    time.sleep(SETTLE_SECONDS)
    unload = mesh.runtime.unloadModel
    calls += [unload.future(spi.UnloadModelRequest(modelId=name), timeout=LONG_ENOUGH_SECONDS) for name in names]
    wanted = dict.fromkeys(names, "UNLOADING").items()
    until(lambda: wanted <= mesh.index().items(), "all unloads wait")
    times = _turn(mesh)
    gate.touch()
    for call in calls:
        call.result()
    return times


def beside(amounts: Amounts) -> Finding:
    """Inference on another model while unloads wait, on the real Triton."""
    finding = Finding("beside", "inference on another model while unloads wait, on the real Triton")
    names = [f"light-{number}" for number in range(min(MODELS, amounts.light_models))]
    some = names[: max(1, len(names) // PENDING_SHARE)]
    quiet: list[float] = []
    waiting: list[float] = []
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        gate = folder / "go"
        sleeper = {"config.pbtxt": SLEEPER_CONFIG.encode(), "1/model.py": SLEEPER.format(gate=str(gate)).encode()}
        mesh = light.pod(stack, folder, {"sleeper": sleeper, "other": models.affine(2, 1)}, AT_ONCE)
        pool = stack.enter_context(ThreadPoolExecutor(AT_ONCE))
        list(pool.map(partial(light.load, mesh), names))
        for _ in range(max(LEAST_ROUNDS, amounts.rounds)):
            quiet += _turn(mesh)
            waiting += _pending(mesh, gate, some)
            list(pool.map(partial(light.load, mesh), some))
    case = f"99th percentile, {len(names)} models loaded, {len(some)} unloads wait"
    for client, times in ((OURS, waiting), ("nothing else goes on", quiet)):
        finding.add(case, client, statistics.quantiles(times, n=100)[98], "ms")
    finding.notes.append(f"Of {len(waiting)} requests, one after the other.")
    return finding
