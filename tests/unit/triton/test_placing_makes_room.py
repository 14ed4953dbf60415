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


class Bed:
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
def make(tmp_path: Path) -> Iterator[Callable[..., Bed]]:
    beds: list[Bed] = []
    with small_disk(tmp_path / "small", inodes=400) as root:
        volume = Volume(root / "_triton_models", root / "_adapter")
        volume.claim()

        def made(max_bytes: int = 0, *, refuses: bool = False) -> Bed:
            beds.append(Bed(volume, max_bytes, refuses=refuses))
            return beds[-1]

        yield made
        for bed in beds:
            bed.repository.close()
        volume.close()


@pytest.mark.parametrize("sizes_bytes", [(1,), (1 << 20, 4096)])
async def test_idle_artifacts_give_way_to_a_model_that_is_placed(make: Callable[..., Bed], sizes_bytes: tuple[int, ...]) -> None:
    """For inodes and for bytes; the model is whole."""
    bed = make()
    for size_bytes in sizes_bytes:
        bed.idle.fill(size_bytes)
    before = len(bed.idle.files)

    await bed.repository.place("m", LAYOUT, bed.artifact)

    folder = bed.repository.folder / "m"
    assert (folder / "config.pbtxt").read_bytes() == CONFIG
    assert [(folder / f"{version}/model.py").read_bytes() for version in range(1, 11)] == [b"pass"] * 10
    assert os.listdir(bed.volume.staging_dir) == []
    assert len(bed.idle.files) < before
    assert bed.space.counted_bytes("placed") == len(CONFIG)
    assert bed.space.staging_bytes() == 0


async def test_written_configs_are_within_the_budget(make: Callable[..., Bed]) -> None:
    """Idle artifacts go first; what is beyond the budget is refused with the setting, and nothing is left."""
    bed = make(60_000, refuses=True)
    bed.idle.add(20_000)

    await bed.repository.place("m", LAYOUT, bed.artifact)
    assert bed.idle.files == [] and bed.space.held_bytes() == 50_000
    with pytest.raises(DiskFull, match=r"^CACHE_MAX_BYTES is reached: the files need 50000 bytes"):
        await bed.repository.place("n", LAYOUT, bed.artifact)
    assert os.listdir(bed.repository.folder) == ["m"]
    await bed.repository.remove("m")
    await bed.repository.place("n", LAYOUT, bed.artifact)
    await bed.repository.remove("n")
    assert bed.is_clean and bed.space.held_bytes() == 0
