"""A model is placed on a volume that is full of idle artifacts; where nothing gives way, nothing is left of the model."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapter.errors import DiskFull
from adapter.model import Artifact, Layout, SourceFile
from adapter.triton.repository import Repository
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from tests.fakes.idle_artifacts import IdleArtifacts
from tests.real.small_disk import small_disk

CONFIG = bytes(50_000)
LAYOUT = Layout({f"{version}/model.py": SourceFile("model.py", 4, "e") for version in range(1, 11)}, {"config.pbtxt": CONFIG})


class Rig:
    """A repository on a small disk, with a budget and idle artifacts."""

    def __init__(self, volume: Volume, max_bytes: int, *, refuses: bool) -> None:
        self.volume = volume
        self.space = Space(volume.cache_dir, max_bytes, refuses=refuses, trash=volume.trash)
        self.idle = IdleArtifacts(self.space, volume.artifacts_dir)
        self.repository = Repository(volume, self.space)
        staged = volume.new_staging()
        (staged / "model.py").write_bytes(b"pass")
        self.artifact = Artifact(volume.publish(staged), is_ours=True)

    @property
    def is_clean(self) -> bool:
        return not any(os.listdir(folder) for folder in (self.volume.staging_dir, self.volume.trash_dir, self.volume.repository_dir))


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    rigs: list[Rig] = []
    with small_disk(tmp_path / "small", inodes=400) as root:
        volume = Volume(root / "_triton_models", root / "_adapter")
        volume.claim()

        def made(max_bytes: int = 0, *, refuses: bool = False) -> Rig:
            rigs.append(Rig(volume, max_bytes, refuses=refuses))
            return rigs[-1]

        yield made
        for rig in rigs:
            rig.repository.close()
        volume.close()


@pytest.mark.parametrize("sizes_bytes", [(1,), (1 << 20, 4096)])
async def test_idle_artifacts_give_way_to_a_model_that_is_placed(make: Callable[..., Rig], sizes_bytes: tuple[int, ...]) -> None:
    """For inodes and for bytes; the model is whole."""
    rig = make()
    for size_bytes in sizes_bytes:
        rig.idle.fill(size_bytes)
    before = len(rig.idle.files)

    await rig.repository.place("m", LAYOUT, rig.artifact)

    folder = rig.repository.folder / "m"
    assert (folder / "config.pbtxt").read_bytes() == CONFIG
    assert [(folder / f"{version}/model.py").read_bytes() for version in range(1, 11)] == [b"pass"] * 10
    assert os.listdir(rig.volume.staging_dir) == []
    assert len(rig.idle.files) < before
    assert rig.space.counted_bytes("placed") == len(CONFIG)
    assert rig.space.counted_bytes("staging") == 0


async def test_written_configs_are_within_the_budget(make: Callable[..., Rig]) -> None:
    """Idle artifacts go first; what is beyond the budget is refused with the setting, and nothing is left."""
    rig = make(60_000, refuses=True)
    rig.idle.add(20_000)

    await rig.repository.place("m", LAYOUT, rig.artifact)
    assert rig.idle.files == [] and rig.space.held_bytes() == 50_000
    with pytest.raises(DiskFull, match=r"^CACHE_MAX_BYTES is reached: the files need 50000 bytes"):
        await rig.repository.place("n", LAYOUT, rig.artifact)
    assert os.listdir(rig.repository.folder) == ["m"]
    await rig.repository.remove("m")
    await rig.repository.place("n", LAYOUT, rig.artifact)
    await rig.repository.remove("n")
    assert rig.is_clean and rig.space.held_bytes() == 0
