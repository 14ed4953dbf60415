"""Triton has lost models while calls load others: a slot goes to a call that waits for it, then to a restore."""

from __future__ import annotations

import asyncio

import pytest

from adapter.lifecycle.lifecycle import RuntimeLifecycle
from tests.builders import a_spec
from tests.fakes.world import World

pytestmark = pytest.mark.looptime


async def test_restores_begin_when_no_call_needs_a_slot(lifecycle: RuntimeLifecycle, world: World) -> None:
    """Two calls have the two slots when Triton is back without four models; two more calls come later."""
    for name in ("a", "b", "c", "d"):
        await lifecycle.load(a_spec("models/a", model_id=name))
    world.kill_triton()
    sent: list[str] = []
    begin = world.begin_load
    world.begin_load = lambda model_id: (sent.append(model_id), begin(model_id))[1]  # type: ignore[method-assign]
    calls = [asyncio.create_task(lifecycle.load(a_spec("models/a", model_id=f"new{number}"))) for number in range(2)]
    await asyncio.sleep(1)
    world.start_triton()
    await asyncio.sleep(0.01)
    calls += [asyncio.create_task(lifecycle.load(a_spec("models/a", model_id=f"new{number}"))) for number in range(2, 4)]
    await asyncio.gather(*calls)
    await asyncio.sleep(60)

    assert sorted(sent[:4]) == ["new0", "new1", "new2", "new3"]
    assert sorted(sent[4:]) == ["a", "b", "c", "d"]


async def test_restores_begin_at_once_when_calls_give_their_slots_up(lifecycle: RuntimeLifecycle, world: World) -> None:
    """The loads go on in Triton, and so do their undos: neither needs a slot."""
    for name in ("a", "b"):
        await lifecycle.load(a_spec("models/a", model_id=name))
    world.kill_triton()
    calls = [asyncio.create_task(lifecycle.load(a_spec("models/a", model_id=f"new{number}"))) for number in range(2)]
    await asyncio.sleep(1)
    world.hold("load")
    world.start_triton()
    await world.until_held("load")
    await asyncio.sleep(1)
    for call in calls:
        call.cancel()
    await asyncio.sleep(1)
    kinds = sorted(operation.kind for operation in lifecycle.registry.operations())
    world.let_go("load")
    await asyncio.sleep(60)

    assert kinds == ["load", "load", "restore", "restore"]
