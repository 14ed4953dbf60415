"""The empty `__pycache__` that lies beside a placed `.py`: Triton loads the model, and Python fills it."""

from __future__ import annotations

import os

from tests.contract.server.bed import Bed, RealBed, unnoticed


async def test_an_empty_pycache_does_not_disturb_loading(bed: Bed) -> None:
    """In each version; the directory stays the same one while the stub writes, and all of it goes with the model."""
    server = bed.connect()
    await bed.place("m", versions=("1", "2"))
    identity = (await bed.repository.inventory())["m"].identity
    folder = bed.repository.folder / "m"
    assert [os.listdir(folder / version / "__pycache__") for version in ("1", "2")] == [[], []]

    await server.load("m", unnoticed)

    assert await server.is_ready("m")
    assert await bed.states("m") == ["READY", "READY"]
    written = [path.parent.name for path in folder.rglob("*.pyc")]
    assert written == (["__pycache__"] * 2 if isinstance(bed, RealBed) else [])
    assert (await bed.repository.inventory())["m"].identity == identity
    await server.unload("m")
    await bed.repository.remove("m")
    assert os.listdir(bed.repository.folder) == os.listdir(bed.volume.trash_dir) == []
    assert bed.volume.trash.size_bytes() == 0
