"""Another process deletes our folders under the running adapter, seen from ModelMesh."""

from __future__ import annotations

import shutil

import grpc
import pytest

from adapter.volume.volume import Volume
from tests.fault.conftest import MODEL, System


@pytest.mark.parametrize("name", ["cache_dir", "repository_dir", "staging_dir", "artifacts_dir", "trash_dir"])
async def test_a_folder_that_vanishes_is_made_again(system: System, name: str) -> None:
    """What is loaded can be unloaded, and the next model loads."""
    system.put("m", model=MODEL)
    await system.load("before", "m")
    shutil.rmtree(getattr(system.volume, name))

    await system.unload("before")
    await system.load("after", "m")

    assert system.triton.in_memory == {"after": 1}
    await system.unload("after")
    assert system.leftovers() == []


async def test_an_adapter_whose_folder_another_one_has_taken_over_says_so(system: System) -> None:
    """What is loaded can still be unloaded: ModelMesh would lose the model's space for good."""
    system.put("m", model=MODEL)
    await system.load("before", "m")
    shutil.rmtree(system.volume.cache_dir)
    other = Volume(system.volume.repository_dir, system.volume.cache_dir)
    other.claim()

    failure = await system.failure("after", "m")

    assert failure.code() is grpc.StatusCode.INTERNAL
    assert f"another adapter has taken over {system.volume.cache_dir}, which was deleted" in failure.details()
    assert "another adapter" in (system.lifecycle.readiness() or "")
    await system.unload("before")
    await system.unload("after")
    other.close()
    assert system.triton.in_memory == {}
    assert list(system.volume.repository_dir.iterdir()) == []
