"""
`python -m tests.prove.with_traffic --kills 100`: the traffic of ModelMesh's simulator on the real parts, and faults in the middle of it.

First the adapter alone is killed, at random points; then every kind of fault comes in a random order. Each row counts models
that were called loaded when the fault came, and that nobody unloaded since.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import grpc

from tests.mesh.announced import FatalError
from tests.mesh.faults import Fault
from tests.mesh.figures import FaultRow, Figures
from tests.mesh.mesh import Mesh
from tests.mesh.parts import Parts
from tests.mesh.population import Case, populate
from tests.mesh.runtime import GrpcRuntime
from tests.mesh.session import Session, mesh_faults
from tests.mesh.times import Times
from tests.mesh.watch import Watch
from tests.prove.report import Row
from tests.real.children import PartError
from tests.real.install import CannotRunError

MODELS = 50
RATE = 30.0
HURRY = 30
AWAY_SECONDS = 10.0
PAUSE_SECONDS = 3.0
"""Between two faults, on average: a random point of whatever goes on, with time for models to be loaded again."""
SESSION_KILLS = 25
"""Of one life of ModelMesh."""
KILL_SECONDS = 5.0
"""What one takes, about: the pause, the new process, the look at every model."""
OTHERS_SHARE = 5
"""Kills of the adapter between two rounds of all other kinds of fault."""


@dataclass
class Tried:
    """Over all sessions."""

    kinds: dict[str, FaultRow] = field(default_factory=dict)
    figures: list[Figures] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)

    def add(self, watch: Watch) -> None:
        self.figures.append(watch.figures)
        self.broken += map(str, watch.broken)
        for kind, row in watch.figures.faults.items():
            known = self.kinds.setdefault(kind, FaultRow())
            known.times += row.times
            known.tried += row.tried
            known.survived += row.survived
            known.slowest = max(known.slowest, row.slowest)

    def times(self, kind: str) -> int:
        return self.kinds[kind].times if kind in self.kinds else 0

    @property
    def note(self) -> str:
        """All calls of all sessions."""
        parts = []
        for kind in ("infer", "load", "unload", "predict"):
            ok, not_ok = (sum(getattr(each, name)[kind] for each in self.figures) for name in ("ok", "not_ok"))
            slowest = max((each.percentile(kind, 0.99) or 0.0 for each in self.figures), default=0.0)
            parts.append(f"{kind} {ok} ok, {not_ok} failed, p99 {slowest * 1000:.0f} ms at most")
        return "calls: " + "; ".join(parts)


KILL = "the adapter dies (kill -9)"


async def tried(parts: Parts, cases: list[Case], kills: int, seed: int) -> Tried:
    """Kills of the adapter, and then the other faults."""
    found, number = Tried(), 0
    while found.times(KILL) < kills and not found.broken:
        number += 1
        wanted = min(SESSION_KILLS, kills - found.times(KILL))
        await session(parts, cases, found, {KILL: parts.restart_adapter}, wanted * KILL_SECONDS, seed + number)
    others: dict[str, Fault] = {
        "Triton dies (kill -9)": parts.restart_triton,
        "Triton hangs (SIGSTOP 10 s)": partial(parts.pause_triton, AWAY_SECONDS),
        "the store is away (10 s)": partial(parts.take_store_away, AWAY_SECONDS),
    }
    rounds = max(1, kills // OTHERS_SHARE)
    while not found.broken and min(found.times(kind) for kind in others) < rounds:
        number += 1
        wanted = min(SESSION_KILLS, (rounds - min(found.times(kind) for kind in others)) * (len(others) + 1))
        await session(parts, cases, found, others, wanted * AWAY_SECONDS, seed + number, dies=True)
    return found


async def session(
    parts: Parts, cases: list[Case], found: Tried, faults: Mapping[str, Fault], seconds: float, seed: int, *, dies: bool = False
) -> None:
    """One life of ModelMesh, or several where ModelMesh itself dies too, with at least one fault."""
    watch = Watch(knows_faults=True)
    async with GrpcRuntime(parts.adapter.channel_target, parts.triton.grpc_target) as runtime:
        mesh = Mesh(runtime, times=Times().hurried(HURRY), watch=watch, unload_bound_seconds=180, churn_seconds=0.0)
        run = Session(
            mesh=mesh,
            cases=cases,
            seconds=seconds,
            rate=RATE,
            seed=seed,
            volume=parts.volume,
            faults={**faults, **(mesh_faults(mesh) if dies else {})},
            fault_pause=PAUSE_SECONDS,
            keeps_going=True,
            line=_Seldom(),
        )
        await run.run()
    found.add(watch)
    for kind, row in watch.figures.faults.items():
        print(f"{kind}: {row.times} times, {row.tried} models, {row.survived} survived, {row.lost} lost, {row.slowest:.1f} s", flush=True)
    for broken in watch.broken:
        print(broken, flush=True)


class _Seldom:
    """Prints each tenth line."""

    def __init__(self) -> None:
        self._lines = 0

    def __call__(self, text: str) -> None:
        self._lines += 1
        if self._lines % 10 == 0:
            print(text, flush=True)


def main() -> int:
    """0: nothing was lost, and every rule held. 1: not so. 2: it could not begin."""
    parser = argparse.ArgumentParser(prog="python -m tests.prove.with_traffic", description=(__doc__ or "").strip().splitlines()[2])
    parser.add_argument("--kills", type=int, default=100, help="of the adapter (100)")
    parser.add_argument("--models", type=int, default=MODELS, help=f"registered ({MODELS})")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="a file for the rows, for other programs")
    given = parser.parse_args()
    try:
        with Parts() as parts:
            cases = populate(given.models, random.Random(given.seed), parts.put)
            found = asyncio.run(tried(parts, cases, given.kills, given.seed))
    except (FatalError, PartError, CannotRunError, OSError) as error:
        print(f"the run could not begin: {error}", file=sys.stderr)
        return 2
    rows = [
        Row(kind, row.tried, row.survived, row.lost, f"{row.times} times; all answer {row.slowest:.1f} s after the fault at most")
        for kind, row in found.kinds.items()
    ]
    print(found.note)
    if given.json:
        given.json.write_text(json.dumps({"rows": [asdict(row) for row in rows], "notes": [found.note], "wrong": found.broken}))
    return 1 if found.broken or any(row.lost for row in rows) else 0


if __name__ == "__main__":
    grpc.aio.init_grpc_aio()
    sys.exit(main())
