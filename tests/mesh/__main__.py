"""
ModelMesh's client side against an adapter and a Triton: `python -m tests.mesh --models 200 --seconds 60 --faults`.

Without targets the real parts are started here. With `--adapter` and `--triton` those that run are used.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

from tests.mesh.announced import FatalError
from tests.mesh.faults import Fault, mesh_faults
from tests.mesh.mesh import Mesh
from tests.mesh.operator import Registration, cases_of
from tests.mesh.parts import Parts
from tests.mesh.population import Case, populate
from tests.mesh.runtime import CallError, GrpcRuntime
from tests.mesh.session import Session
from tests.mesh.times import Times
from tests.mesh.watch import Watch
from tests.real.children import PartError

HELD, BROKEN, CANNOT = 0, 1, 2
HURRY = 30
"""Failures are forgotten by this factor sooner than after 7.5 to 15 minutes."""
AWAY_SECONDS = 10
"""Triton hangs, or the store is away, for so long."""


@dataclass
class Rig:
    """What a run stands on."""

    adapter: str
    triton: str
    volume: Path | None
    cases: list[Case] = field(default_factory=list)
    faults: dict[str, Fault] = field(default_factory=dict)


def main(words: Sequence[str] | None = None) -> int:
    """0: every rule held; 1: one is broken; 2: the run could not begin."""
    parser = _parser()
    chosen = parser.parse_args(words)
    if bool(chosen.adapter) != bool(chosen.triton):
        parser.error("--adapter and --triton belong together")
    if chosen.adapter and not (chosen.purge and chosen.path):
        parser.error("a given adapter needs --path, and --purge: the start of ModelMesh unloads everything that its Triton has loaded")
    try:
        with ExitStack() as stack:
            return asyncio.run(_run(stack, chosen))
    except KeyboardInterrupt:
        print("\nstopped")
        return 130
    except (FatalError, PartError, OSError) as error:
        print(f"\nthe run could not begin: {error}", file=sys.stderr)
        return CANNOT


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mesh", description=(__doc__ or "").strip().splitlines()[0])
    add = parser.add_argument
    add("--models", type=int, default=50, help="registered (50)")
    add("--seconds", type=float, default=30, help="of traffic (30)")
    add("--rate", type=float, default=15, help="requests a second (15)")
    add("--seed", type=int, default=1, help="decides order and time of everything that is chosen here (1)")
    add("--faults", action="store_true", help="kill and pause the neighbours; with given ones, ModelMesh alone dies")
    add("--fault-pause", type=float, default=8, help="calm seconds between two faults, on average (8)")
    add("--keep-going", action="store_true", help="also after a rule is broken")
    add("--json", type=Path, metavar="FILE", help="faults, calls and broken rules, for other programs")
    given = parser.add_argument_group("against parts that run already")
    given.add_argument("--adapter", metavar="TARGET", help="its gRPC target, for instance localhost:8085 or unix:/tmp/mmesh/grpc.sock")
    given.add_argument("--triton", metavar="TARGET", help="its gRPC target, for instance localhost:8001")
    given.add_argument("--purge", action="store_true", help="everything that this Triton has loaded may be unloaded")
    given.add_argument("--path", action="append", default=[], help="modelPath; again for further ones; {n} becomes the model's number")
    given.add_argument("--type", default="", help="modelType, for instance onnx")
    given.add_argument("--key", help='modelKey, JSON (a storage_key of "s3")')
    given.add_argument("--volume", type=Path, help="the folder that adapter and Triton share: looked into as well")
    return parser


async def _run(stack: ExitStack, chosen: argparse.Namespace) -> int:
    given = Rig(chosen.adapter, chosen.triton, chosen.volume)
    rig = given if chosen.adapter else await asyncio.to_thread(_own, stack, chosen)
    watch = Watch(knows_faults=not chosen.adapter)
    async with GrpcRuntime(rig.adapter, rig.triton) as runtime:
        mesh = Mesh(runtime, times=Times().hurried(HURRY), watch=watch)
        print(f"ModelMesh starts: asks the adapter at {rig.adapter} for the runtime's status, for {mesh.times.start:g} s at most")
        if chosen.adapter:
            registration = Registration(chosen.path, chosen.type, chosen.key)
            rig.cases = await cases_of(mesh, registration, chosen.models)
            try:
                await runtime.index()
            except CallError as error:
                raise FatalError(f"no rule can be judged without Triton's index: {error}") from None
        faults = rig.faults | mesh_faults(mesh) if chosen.faults else {}
        session = Session(
            mesh=mesh,
            cases=rig.cases,
            seconds=chosen.seconds,
            rate=chosen.rate,
            seed=chosen.seed,
            volume=rig.volume,
            faults=faults,
            fault_pause=chosen.fault_pause,
            keeps_going=chosen.keep_going,
            line=partial(print, flush=True),
        )
        try:
            held = await session.run()
        finally:
            print(f"\n\n{watch.figures.table()}\n")
    for broken in watch.broken:
        print(broken)
    if chosen.json:
        faults_told = [{"kind": kind, **asdict(row)} for kind, row in watch.figures.faults.items()]
        told = {"faults": faults_told, "calls": watch.figures.calls(), "broken": [str(broken) for broken in watch.broken]}
        chosen.json.write_text(json.dumps(told))
    print("every rule held" if held else f"{len(watch.broken)} BROKEN; the same choices again: --seed {chosen.seed}")
    return HELD if held else BROKEN


def _own(stack: ExitStack, chosen: argparse.Namespace) -> Rig:
    parts = stack.enter_context(Parts())
    cases = populate(chosen.models, random.Random(chosen.seed), parts.put)
    faults: dict[str, Fault] = {
        "Triton dies (kill -9)": parts.restart_triton,
        "the adapter dies (kill -9)": parts.restart_adapter,
        f"Triton hangs (SIGSTOP {AWAY_SECONDS} s)": partial(parts.pause_triton, AWAY_SECONDS),
        f"the store is away ({AWAY_SECONDS} s)": partial(parts.take_store_away, AWAY_SECONDS),
    }
    print(f"adapter {parts.adapter.channel_target}, its log {parts.adapter.log_path}\nTriton {parts.triton.grpc_target}")
    return Rig(parts.adapter.channel_target, parts.triton.grpc_target, parts.volume, cases, faults)


if __name__ == "__main__":
    sys.exit(main())
