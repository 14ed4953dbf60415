"""Every test of this folder that takes a `rig` runs twice: on the fake, and on the real Triton."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.server.rig import FakeRig, RealRig, Rig
from tests.real import install

KINDS = [pytest.param(FakeRig, id="fake"), pytest.param(RealRig, id="real", marks=pytest.mark.real_triton)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> type[Rig]:
    """Which Triton."""
    if request.param is RealRig:
        try:
            install.install()
        except install.CannotRunError as reason:
            pytest.skip(f"the real Triton cannot run here: {reason}")
    return request.param


@pytest_asyncio.fixture
async def make_rig(kind: type[Rig], tmp_path: Path) -> AsyncIterator[Callable[..., Rig]]:
    """Rigs whose Triton is not started yet; closed at the end."""
    rigs: list[Rig] = []

    def make(**options: Any) -> Rig:
        rig = kind(tmp_path / f"volume-{len(rigs)}", **options)
        rigs.append(rig)
        return rig

    yield make
    for rig in rigs:
        await rig.close()
    assert [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}] == []


@pytest_asyncio.fixture
async def rig(make_rig: Callable[..., Rig]) -> Rig:
    """A running Triton in explicit mode over an empty repository."""
    rig = make_rig()
    await rig.start()
    return rig
