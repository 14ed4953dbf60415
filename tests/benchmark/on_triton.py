"""Light models on the real Triton: a load and an unload through the adapter, beside the same calls to a Triton of their own."""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from adapter.stubs import service_pb2 as v2
from tests.benchmark import light
from tests.benchmark.amounts import Amounts
from tests.benchmark.report import OURS, Finding
from tests.real import models
from tests.real.mesh import Mesh
from tests.real.triton import Triton

BLOCK = 10
"""Models in a row on one side, before it is the other's turn."""
AGAIN = 4
"""Of all models, one in so many is unloaded and loaded once more, two at a time."""
CALL_SECONDS = 60
Act = Callable[[str], object]


def triton(amounts: Amounts) -> Finding:
    """Light models on the real Triton, one and two at a time."""
    finding = Finding("triton", f"{amounts.light_models} light models on the real Triton")
    names = [f"light-{number}" for number in range(amounts.light_models)]
    some = names[-max(2 * BLOCK, len(names) // AGAIN) :]
    steps: list[tuple[str, int, Sequence[str], int]] = [
        ("load, one at a time", 0, names, 1),
        ("unload, two at a time", 1, some, 2),
        ("load, two at a time", 0, some, 2),
        ("unload, one at a time", 1, names, 1),
    ]
    found: dict[tuple[str, str], list[float]] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        mesh = light.pod(stack, folder, {"base": models.affine(1, 0)}, at_once=2)
        sides: dict[str, tuple[Act, Act]] = {OURS: (partial(light.load, mesh), mesh.unload), "Triton alone": _alone(stack, folder, names)}
        for step, act, chosen, at_once in steps:
            for begin in range(0, len(chosen), BLOCK):
                for side, acts in sides.items():
                    found.setdefault((step, side), []).append(_timed(acts[act], chosen[begin : begin + BLOCK], at_once))
            print(f"   {step}: " + ", ".join(f"{side} {statistics.median(found[step, side]):.1f} ms" for side in sides), flush=True)
    for (step, side), each in found.items():
        finding.add(step, side, statistics.median(each), "ms", each)
    for count in ("one", "two"):
        for side in sides:
            total = sum(statistics.median(found[f"{what}, {count} at a time", side]) for what in ("load", "unload"))
            finding.add(f"load + unload, {count} at a time", side, total, "ms")
    finding.notes.append(
        f"Milliseconds of the clock for each model, medians of blocks of {BLOCK}. Triton's own unload ends before it is true. "
        "The rest that Triton is owed after each look at its index goes on while it is the other's turn."
    )
    return finding


def _alone(stack: ExitStack, folder: Path, names: Sequence[str]) -> tuple[Act, Act]:
    repository = folder / "alone"
    models.write(models.affine(1, 0), repository / "base")
    for name in names:
        models.write({"config.pbtxt": light.ensemble("base"), "1/empty": b""}, repository / name)
    server = stack.enter_context(Triton(repository))
    asked = stack.enter_context(Mesh(server.grpc_target, server.grpc_target)).triton

    def load(name: str) -> object:
        return asked.RepositoryModelLoad(v2.RepositoryModelLoadRequest(model_name=name), timeout=CALL_SECONDS)

    def unload(name: str) -> object:
        return asked.RepositoryModelUnload(v2.RepositoryModelUnloadRequest(model_name=name), timeout=CALL_SECONDS)

    load("base")
    return load, unload


def _timed(act: Act, names: Sequence[str], at_once: int) -> float:
    """Milliseconds for each, by the clock."""
    with ThreadPoolExecutor(at_once) as pool:
        began = time.perf_counter()
        for each in [pool.submit(act, name) for name in names]:
            each.result()
        return (time.perf_counter() - began) / len(names) * 1000
