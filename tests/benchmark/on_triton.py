"""
Light models on the real Triton: a load and an unload through the adapter, beside the same calls to a Triton of their own.

Light: an ensemble of one step, so that Triton starts no process for it. All have the same files, on a mounted claim.
"""

from __future__ import annotations

import json
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

from adapter.stubs import service_pb2 as v2
from tests.benchmark.amounts import Amounts
from tests.benchmark.report import OURS, Finding, Row
from tests.real import models
from tests.real.children import PartError
from tests.real.mesh import Mesh
from tests.real.pod import Pod
from tests.real.triton import Triton

ALONE = "Triton alone"
BASE = "base"
BLOCK = 10
"""Models in a row on one side, before it is the other's turn."""
AGAIN = 4
"""Of all models, one in so many is unloaded and loaded once more, two at a time."""
CALL_SECONDS = 60
ENSEMBLE = """platform: "ensemble"
max_batch_size: 0
input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ]
output [ { name: "Y" data_type: TYPE_FP32 dims: [ -1 ] } ]
ensemble_scheduling { step [ {
  model_name: "base" model_version: -1
  input_map { key: "X" value: "X" } output_map { key: "Y" value: "Y" }
} ] }
"""
Act = Callable[[str], object]


def triton(amounts: Amounts) -> Finding:
    """Light models on the real Triton, one and two at a time."""
    finding = Finding("triton", f"{amounts.light_models} light models on the real Triton")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        try:
            sides = {OURS: _ours(stack, folder), ALONE: _alone(stack, folder, amounts.light_models)}
        except PartError as error:
            finding.wrong.append(str(error).splitlines()[0])
            return finding
        names = [f"light-{number}" for number in range(amounts.light_models)]
        some = names[-max(2 * BLOCK, len(names) // AGAIN) :]
        steps: list[tuple[str, int, Sequence[str], int]] = [
            ("load, one at a time", 0, names, 1),
            ("unload, two at a time", 1, some, 2),
            ("load, two at a time", 0, some, 2),
            ("unload, one at a time", 1, names, 1),
        ]
        found: dict[tuple[str, str], list[float]] = {}
        for step, act, chosen, at_once in steps:
            for begin in range(0, len(chosen), BLOCK):
                for side, acts in sides.items():
                    found.setdefault((step, side), []).append(_timed(acts[act], chosen[begin : begin + BLOCK], at_once))
            print(f"   {step}: " + ", ".join(f"{side} {statistics.median(found[step, side]):.1f} ms" for side in sides), flush=True)
    for (step, side), each in found.items():
        finding.rows.append(Row("triton", step, side, statistics.median(each), "ms", False, min(each), max(each)))
    for count in ("one", "two"):
        for side in sides:
            total = sum(statistics.median(found[f"{what}, {count} at a time", side]) for what in ("load", "unload"))
            finding.rows.append(Row("triton", f"load + unload, {count} at a time", side, total, "ms", False))
    finding.notes.append(
        f"Milliseconds of the clock for each model, medians of blocks of {BLOCK}. Triton's own unload ends before it is true. "
        "The rest that Triton is owed after each look at its index goes on while it is the other's turn."
    )
    return finding


def _ours(stack: ExitStack, folder: Path) -> tuple[Act, Act]:
    volume, claim = folder / "volume", folder / "claims/claim"
    (claim / "light").mkdir(parents=True)
    (claim / "light/config.pbtxt").write_text(ENSEMBLE)
    models.write(models.affine(1, 0), claim / BASE)
    (folder / "config").mkdir()
    (folder / "config/k").write_text(json.dumps({"type": "pvc", "name": "claim"}))
    env = {"PVC_MOUNTS_DIR": str(folder / "claims"), "CONTAINER_MEM_REQ_BYTES": "64GiB", "LOADING_CONCURRENCY": "2"}
    mesh = stack.enter_context(Pod(volume, folder / "config", env)).mesh
    mesh.start()
    mesh.load(BASE, "python", BASE, storage_key="k")
    return lambda name: mesh.load(name, "triton", "light", storage_key="k"), mesh.unload


def _alone(stack: ExitStack, folder: Path, count: int) -> tuple[Act, Act]:
    repository = folder / "alone"
    models.write(models.affine(1, 0), repository / BASE)
    for number in range(count):
        (repository / f"light-{number}/1").mkdir(parents=True)
        (repository / f"light-{number}/config.pbtxt").write_text(ENSEMBLE)
    server = stack.enter_context(Triton(repository))
    stack.callback(shutil.rmtree, repository, ignore_errors=True)
    mesh = stack.enter_context(Mesh(server.grpc_target, server.grpc_target))

    def load(name: str) -> object:
        return mesh.triton.RepositoryModelLoad(v2.RepositoryModelLoadRequest(model_name=name), timeout=CALL_SECONDS)

    def unload(name: str) -> object:
        return mesh.triton.RepositoryModelUnload(v2.RepositoryModelUnloadRequest(model_name=name), timeout=CALL_SECONDS)

    load(BASE)
    return load, unload


def _timed(act: Act, names: Sequence[str], at_once: int) -> float:
    """Milliseconds for each, by the clock."""
    with ThreadPoolExecutor(at_once) as pool:
        began = time.perf_counter()
        for each in [pool.submit(act, name) for name in names]:
            each.result()
        return (time.perf_counter() - began) / len(names) * 1000
