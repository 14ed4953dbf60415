"""Somebody deletes our folders while the adapter runs: they are made again, or the text names the one that is gone."""

from __future__ import annotations

import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.errors import AdapterError
from adapter.volume.volume import Volume

FOLDERS = ["repository_dir", "staging_dir", "artifacts_dir", "trash_dir"]


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    claimed = Volume(tmp_path / "models/_triton_models", tmp_path / "models/_adapter")
    claimed.claim()
    yield claimed
    claimed.close()


def stage(volume: Volume) -> Path:
    staged = volume.new_staging()
    (staged / "file").write_text("x")
    return staged


@pytest.mark.parametrize("name", FOLDERS)
def test_staging_begins_with_all_folders(volume: Volume, name: str) -> None:
    """Everything that is written begins with staging; the folders are as a claim makes them."""
    folder: Path = getattr(volume, name)
    shutil.rmtree(folder)

    volume.new_staging()

    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


def test_staged_files_that_vanish_are_named(volume: Volume) -> None:
    """They are lost: the pull fails, and a later one works."""
    staged = stage(volume)
    shutil.rmtree(volume.staging_dir)

    with pytest.raises(AdapterError, match=rf"^{staged} was deleted while the adapter was working$"), volume.writing(1):
        volume.publish(staged)
    staged = stage(volume)
    shutil.rmtree(volume.staging_dir)
    with pytest.raises(AdapterError, match=rf"^{volume.staging_dir} was deleted while the adapter was working$"), volume.writing(1):
        (staged / "late").touch()
    volume.publish(stage(volume))


def test_discard_works_without_a_lock(volume: Volume) -> None:
    """An unload never fails for it: what is in the way is deleted where it lies."""
    (volume.repository_dir / "m/1").mkdir(parents=True)
    shutil.rmtree(volume.cache_dir)

    volume.discard(volume.repository_dir / "m")
    volume.discard(volume.repository_dir / "absent")

    assert list(volume.repository_dir.iterdir()) == []


def test_a_folder_that_cannot_be_made_again_is_named(volume: Volume) -> None:
    volume.trash_dir.rmdir()
    volume.trash_dir.write_text("in the way")

    with pytest.raises(AdapterError, match=r"^the folder .*/_adapter/trash is gone and cannot be made again: File exists$"):
        volume.new_staging()
