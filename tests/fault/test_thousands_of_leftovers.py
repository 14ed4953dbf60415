"""An earlier adapter has left thousands of models half done: seen from ModelMesh, nothing is slow because of that."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.fault.conftest import MODEL, System, until

COUNT = 5000


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, str]:
    """Directories that were placed, and never loaded."""
    for number in range(COUNT):
        (tmp_path / "volume" / "_triton_models" / f"m{number:04}" / "1").mkdir(parents=True)
    return {}


@pytest.mark.long
async def test_calls_are_answered_and_the_loop_is_free_while_they_are_taken_down(system: System, shown: Callable[..., None]) -> None:
    system.put("m", model=MODEL)
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0)
            longest = max(longest, time.monotonic() - before)

    beating = asyncio.create_task(beat())
    began = time.monotonic()
    await until(lambda: system.lifecycle.registry.is_complete, "the models are taken over")
    taken_over = time.monotonic()
    assert len(system.lifecycle.registry) > COUNT / 2
    await asyncio.gather(system.unload(f"m{COUNT - 1}"), system.unload("absent"))
    unloaded = time.monotonic()
    await system.load("m", "m")
    loaded = time.monotonic()
    beating.cancel()

    shown(
        f"{COUNT} models of an earlier adapter are half done (scripts/test tests/fault/test_thousands_of_leftovers.py)",
        taken_over=f"{taken_over - began:.1f} s",
        unload=f"{unloaded - taken_over:.1f} s",
        load=f"{loaded - unloaded:.1f} s",
        worst_beat=f"{longest:.2f} s",
        left=len(system.lifecycle.registry) - 1,
    )
    assert len(system.lifecycle.registry) > 1, "all of them were taken down: nothing was shown"
    assert f"m{COUNT - 1}" not in {path.name for path in system.volume.repository_dir.iterdir()}
    assert longest < 2
