"""
ModelMesh's simulator over the real Triton in a control group with a limit, with more models than fit: how often is one evicted, and
does truth stay below the limit?

The same traffic thrice: with measured sizes; with an oracle that knows from the first run what each model took; and with files × 1.25,
without a reporter, where the kernel has no limit to kill at, so that the run goes on. `python -m tests.prove.evictions --minutes 20`.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import math
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from adapter.units import MIB
from tests.mesh.mesh import Mesh
from tests.mesh.population import Case, infer_request
from tests.mesh.runtime import GrpcRuntime, Model
from tests.mesh.session import Session
from tests.mesh.times import Times
from tests.prove.pods import CLAIM, Kind, looking, pod, table, true_of_all
from tests.real.memory_group import MemoryGroup

LIMIT_MIB, BUFFER_MIB = 900, 200
"""Of the group, and what is kept free of models: Triton itself, and growth."""
RATE = 1.0
"""Requests a second."""
SAMPLE_SECONDS, TRUTH_SECONDS = 0.1, 2.0
MOST_MORE = 1.2
"""Evictions, beside those with an oracle."""
MOST_FREE = 5
"""Evictions more than with an oracle that count for nothing: of a short run."""
UNLIMITED = 1 << 40


@dataclass
class Run:
    """What came of one."""

    sizes: str
    evictions: int = 0
    loads: int = 0
    refused: int = 0
    """Loads that failed."""
    answers: int = 0
    peak_mib: int = 0
    """Of Triton's control group."""
    above_percent: float = 0.0
    """Of the time in which truth was above the limit."""
    kills: int = 0
    """Of the kernel."""
    broken: list[str] = field(default_factory=list)
    """Rules of the simulator."""


class Oracle(GrpcRuntime):
    """Tells what each model takes in truth, as far as it is known."""

    true: Mapping[str, int] = {}

    async def predict(self, model: Model, seconds: float) -> int:
        return self.true.get(model.model_id) or await super().predict(model, seconds)

    async def load(self, model: Model) -> int:
        told = await super().load(model)
        return self.true.get(model.model_id) or told

    async def size(self, model_id: str, seconds: float) -> int:
        return self.true.get(model_id) or await super().size(model_id, seconds)


SIZES: dict[str, Any] = {
    "onnx": [1, 5, 10, 20, 30, 50, 80, 120, (5, 4), (20, 2), (20, 3)],
    "load": [1, 5, 10, 20, 30, 40, 60, 80, 120, (10, 3), (30, 2), (40, 2)],
    "first": [10, 30, 50],
    "slowly": [20, 40],
}
"""Twenty-eight, of 25 to 200 MiB: two to three times what fits."""


def case_of(kind: Kind) -> Case:
    """As it is registered."""
    return Case(Model(kind.name, f"mt:{kind.model_type}", kind.name, json.dumps(CLAIM)), infer_request({"X": kind.asked}))


@contextmanager
def sampled(group: MemoryGroup, run: Run, true: dict[str, int]) -> Iterator[None]:
    """Look all the time at what the group takes, and now and then at what each model takes: the most of each counts."""
    counts, next_truth = Counter[bool](), 0.0

    def look() -> None:
        nonlocal next_truth
        used = group.used_bytes
        counts[used > LIMIT_MIB * MIB] += 1
        run.peak_mib = max(run.peak_mib, used // MIB)
        if time.monotonic() >= next_truth:
            for model, size in true_of_all(group).items():
                true[model] = max(size, true.get(model, 0))
            next_truth = time.monotonic() + TRUTH_SECONDS

    try:
        with looking(look, SAMPLE_SECONDS):
            yield
    finally:
        run.above_percent = round(100 * counts[True] / max(1, sum(counts.values())), 1)
        run.kills = group.kills


def ran(sizes: str, folder: Path, seconds: float, seed: int, true: dict[str, int], **env: str) -> Run:
    """One run. With `true` from an earlier one and `sizes` "oracle" the simulator believes that."""
    folder.mkdir()
    chosen, run, seen = table(**SIZES), Run(sizes), dict[str, int]()
    numbers = {"CONTAINER_MEM_REQ_BYTES": f"{LIMIT_MIB}MiB", "MEM_BUFFER_BYTES": f"{BUFFER_MIB}MiB", "LOADING_CONCURRENCY": "2"}
    with pod(folder, chosen, **numbers, **env) as (running, group):
        group.limit(UNLIMITED if env else LIMIT_MIB * MIB)

        async def traffic() -> None:
            runtime = (Oracle if sizes == "oracle" else GrpcRuntime)(running.adapter.channel_target, running.target)
            if isinstance(runtime, Oracle):
                runtime.true = true
            async with runtime:
                mesh = Mesh(runtime, times=Times().hurried(30))
                session = Session(
                    mesh=mesh,
                    cases=[case_of(kind) for kind in chosen],
                    seconds=seconds,
                    rate=RATE,
                    seed=seed,
                    volume=running.volume,
                    keeps_going=True,
                    line=lambda line: print(f"{sizes}: {line}, {run.peak_mib} MiB at most", flush=True),
                )
                await session.run()
                figures = mesh.watch.figures
                run.evictions, run.loads, run.refused = figures.counts["evictions"], figures.ok["load"], figures.not_ok["load"]
                run.answers = figures.ok["infer"]
                run.broken = [str(broken).partition("\n")[0] for broken in mesh.watch.broken]
                print(figures.table(), flush=True)

        with sampled(group, run, seen):
            asyncio.run(traffic())
    true.update(seen if sizes == "measured" else {})
    return run


def problems(measured: Run, oracle: Run) -> Iterator[str]:
    """What does not hold."""
    if measured.peak_mib > LIMIT_MIB or measured.kills:
        yield f"truth was {measured.peak_mib} MiB of {LIMIT_MIB}, with {measured.kills} kills of the kernel"
    if measured.evictions > max(oracle.evictions + MOST_FREE, math.ceil(MOST_MORE * oracle.evictions)):
        yield f"{measured.evictions} evictions, {oracle.evictions} with an oracle"
    yield from measured.broken


def main() -> int:
    """0: what is measured is as good as an oracle."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.evictions", description="evictions, measured and with an oracle")
    parser.add_argument("--minutes", type=float, default=20, metavar="N", help="of each of the three runs (20)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the traffic (1)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file")
    given = parser.parse_args()
    true: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, seconds = Path(name), 60 * given.minutes
        runs = [ran(sizes, folder / sizes, seconds, given.seed, true) for sizes in ("measured", "oracle")]
        runs.append(ran("files", folder / "files", seconds, given.seed, true, TRITON_MEMORY_FILE=str(folder / "none")))
    wrong = list(problems(*runs[:2]))
    for run in runs:
        print(json.dumps(asdict(run)))
    print("\n".join(wrong))
    if given.json:
        given.json.write_text(json.dumps({"runs": [asdict(run) for run in runs], "wrong": wrong, "limit_mib": LIMIT_MIB}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
