"""Every test of this folder that takes a `bed` runs twice: on the fake, and on the real Triton."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from tests.contract.server.bed import Bed, FakeBed, RealBed
from tests.real import install

KINDS = [pytest.param(FakeBed, id="fake"), pytest.param(RealBed, id="real", marks=pytest.mark.real_triton)]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> type[Bed]:
    """Which Triton."""
    if request.param is RealBed:
        try:
            install.install()
        except install.CannotRunError as reason:
            pytest.skip(f"the real Triton cannot run here: {reason}")
    return request.param


@pytest_asyncio.fixture
async def make_bed(kind: type[Bed], tmp_path: Path) -> AsyncIterator[Callable[..., Bed]]:
    """Beds whose Triton is not started yet; closed at the end."""
    beds: list[Bed] = []

    def make(**options: Any) -> Bed:
        bed = kind(tmp_path / f"volume-{len(beds)}", **options)
        beds.append(bed)
        return bed

    yield make
    for bed in beds:
        await bed.close()
    assert [task.get_name() for task in asyncio.all_tasks() - {asyncio.current_task()}] == []


@pytest_asyncio.fixture
async def bed(make_bed: Callable[..., Bed]) -> Bed:
    """A running Triton in explicit mode over an empty repository."""
    bed = make_bed()
    await bed.start()
    return bed
