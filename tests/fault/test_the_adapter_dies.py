"""
kill -9 at random points of a random mix of calls: the next process finishes or undoes what was half done, and loses nothing.

The adapter is a process, S3 the real server. Triton is the fake one, or the real one: either outlives the adapter, as in a
pod. Each kind of work that a kill met is one row of a table; `--kills` and `--kills-seed` say how many kills, and which.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2_grpc as v2_rpc

from tests.fakes.triton import FakeTriton
from tests.fakes.triton_models import Behaviour
from tests.fault.deaths import Trial, neighbours_of
from tests.real.s3 import S3Server
from tests.real.triton import Triton


async def died(trial: Trial, kills: int) -> None:
    """So many lives and deaths, and the end."""
    watch = asyncio.create_task(trial.watch())
    for _ in range(kills):
        await trial.live()
    await trial.end()
    watch.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watch


@pytest.mark.timeout(900)
@pytest.mark.parametrize(("rig", "share"), [("the fake Triton", 1.0), ("the real Triton", 0.3)])
async def test_an_adapter_that_is_killed_at_any_point_loses_nothing(
    rig: str, share: float, tmp_path: Path, config: Path, s3: S3Server, request: pytest.FixtureRequest, shown: Callable[..., None]
) -> None:
    seed, asked = request.config.getoption("--kills-seed"), request.config.getoption("--kills")
    kills = max(1, int(asked * share))
    volume = tmp_path / "volume"
    async with contextlib.AsyncExitStack() as stack:
        if rig == "the fake Triton":
            fake = await stack.enter_async_context(FakeTriton(volume / "_triton_models"))
            fake.repository.mkdir(parents=True)
            fake.default = Behaviour(load_seconds=0.05, unload_seconds=0.05)
            target, orders = fake.target, lambda: len(fake.journal)
        else:
            target, orders = stack.enter_context(Triton(volume / "_triton_models")).grpc_target, lambda: 0
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(target))
        adapter, proxy = stack.enter_context(neighbours_of(volume, config, s3, target))
        trial = Trial(random.Random(seed), adapter, proxy, s3, volume, v2_rpc.GRPCInferenceServiceStub(channel), orders)
        await died(trial, kills)

    command = f"scripts/test tests/fault/test_the_adapter_dies.py --kills {asked} --kills-seed {seed}"
    for fault, row in sorted(trial.table.items()):
        shown(f"kill -9 of the adapter, {kills} times, over {rig} ({command})", fault=fault, **asdict(row))
    assert not trial.problems, "\n".join([f"seed {seed}", *trial.problems])
