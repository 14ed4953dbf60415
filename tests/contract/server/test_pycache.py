"""The empty `__pycache__` that lies beside a placed `.py`: Triton loads the model, and Python fills it."""

from __future__ import annotations

import os

from tests.contract.server.rig import RealRig, Rig, unnoticed


async def test_an_empty_pycache_does_not_disturb_loading(rig: Rig) -> None:
    """In each version; the directory stays the same one while the stub writes, and all of it goes with the model."""
    server = rig.connect()
    await rig.place("m", versions=("1", "2"))
    identity = (await rig.repository.inventory())["m"].identity
    folder = rig.repository.folder / "m"
    assert [os.listdir(folder / version / "__pycache__") for version in ("1", "2")] == [[], []]

    await server.load("m", unnoticed)

    assert await server.is_ready("m")
    assert await rig.states("m") == ["READY", "READY"]
    written = [path.parent.name for path in folder.rglob("*.pyc")]
    assert written == (["__pycache__"] * 2 if isinstance(rig, RealRig) else [])
    assert (await rig.repository.inventory())["m"].identity == identity
    await server.unload("m")
    await rig.repository.remove("m")
    assert os.listdir(rig.repository.folder) == os.listdir(rig.volume.trash_dir) == []
    assert rig.volume.left_bytes() == 0
