"""Our folders on the shared volume: one adapter at a time, one file system, and nothing of yesterday."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest

from adapter.telemetry.metrics import REGISTRY
from adapter.volume.volume import Volume, VolumeError
from tests.unit.test_the_volume_has_a_budget import failing


@pytest.fixture
def volume(tmp_path):
    """A volume that is not claimed yet."""
    made = Volume(tmp_path / "models/_triton_models", tmp_path / "models/_adapter")
    yield made
    made.close()


def leftovers():
    return REGISTRY.get_sample_value("triton_adapter_leftover_paths")


def test_a_process_that_was_killed_in_its_claim_leaves_nothing_in_the_folder_of_triton(volume, monkeypatch):
    """The file of the check goes with the next claim: where others place models too, nothing else takes it out."""

    def killed(path, **_more):
        if path.exists():
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Path, "unlink", killed)
        volume.claim()
    assert len(list(volume.repository_dir.iterdir())) == 1
    volume.close()
    volume.claim()
    assert list(volume.repository_dir.iterdir()) == []


def test_what_a_failed_disk_does_not_show_is_not_taken_for_absent(volume, monkeypatch):
    """Its caller would say that the model is gone."""
    volume.claim()
    placed = volume.repository_dir / "m"
    placed.mkdir()

    with monkeypatch.context() as patch:
        patch.setattr(os, "lstat", failing(errno.EIO))
        patch.setattr(os, "rename", failing(errno.EIO))
        failure = volume.discard(placed)
    assert isinstance(failure, OSError) and failure.errno == errno.EIO


def test_a_claim_removes_what_an_earlier_process_left(volume):
    """Staging and trash of yesterday, links not followed; files that are placed live on, and artifacts are their reader's."""
    volume.claim()
    kept = volume.cache_dir / "kept"
    kept.write_text("x")
    for folder in (volume.staging_dir, volume.artifacts_dir, volume.trash_dir):
        (folder / "old/1").mkdir(parents=True)
        (folder / "old/1/model").write_text("model")
        (folder / "link").symlink_to(kept)
        (folder / "dangling").symlink_to("nowhere")
        (folder / "file").write_text("")
    placed = volume.repository_dir / "model"
    placed.hardlink_to(volume.artifacts_dir / "old/1/model")
    volume.close()
    volume.claim()
    for folder in (volume.staging_dir, volume.trash_dir):
        assert list(folder.iterdir()) == []
    assert sorted(entry.name for entry in volume.artifacts_dir.iterdir()) == ["dangling", "file", "link", "old"]
    assert kept.exists()
    assert placed.read_text() == "model"
    assert leftovers() == 0


def test_folders_on_different_file_systems_are_refused(volume, monkeypatch):
    """Tried, not guessed: bind mounts of one device differ too."""
    monkeypatch.setattr(Path, "hardlink_to", failing(errno.EXDEV))
    with pytest.raises(VolumeError, match=r"are on different file systems \(or mounts\), but .*; change CACHE_DIR$"):
        volume.claim()
    assert list(volume.repository_dir.iterdir()) == []


def test_a_volume_without_hard_links_is_refused(volume, monkeypatch):
    """With the system's reason."""
    monkeypatch.setattr(Path, "hardlink_to", failing(errno.EOPNOTSUPP))
    with pytest.raises(VolumeError, match=r"cannot move or hard-link a file from .* to .*: Operation not supported"):
        volume.claim()


@pytest.mark.parametrize("which", ["repository_dir", "cache_dir"])
def test_a_folder_that_cannot_be_made_is_named(tmp_path, which):
    """Here because a file is in the way."""
    (tmp_path / "file").write_text("")
    folders = {"repository_dir": tmp_path / "r", "cache_dir": tmp_path / "c"} | {which: tmp_path / "file/x"}
    with pytest.raises(VolumeError, match=r"cannot create the folder .*/file/x: Not a directory"):
        Volume(**folders).claim()


def test_what_cannot_be_deleted_is_out_of_sight_counted_and_tried_again(volume, monkeypatch):
    """A root Triton's `__pycache__`, for instance. Nothing is raised."""
    volume.claim()
    path = volume.repository_dir / "m"
    (path / "1/__pycache__").mkdir(parents=True)
    (path / "1/__pycache__/model.pyc").write_text("")
    (path / "1/model.py").write_text("")
    with monkeypatch.context() as patch:
        original = os.unlink

        def unlink(name, *arguments, **options):
            if str(name).endswith(".pyc"):
                raise PermissionError(errno.EACCES, "Permission denied")
            original(name, *arguments, **options)

        patch.setattr(os, "unlink", unlink)
        volume.discard(path)
    assert not path.exists()
    left = [entry.relative_to(volume.trash_dir).parts[1:] for entry in volume.trash_dir.rglob("*") if entry.is_file()]
    assert left == [("1", "__pycache__", "model.pyc")]
    assert leftovers() == 1
    volume.close()
    volume.claim()
    assert leftovers() == 0
    assert list(volume.trash_dir.iterdir()) == []


def test_what_is_nested_too_deep_is_left_and_raises_nothing(volume):
    """An attacker that wants its files kept makes directories in directories."""
    volume.claim()
    top = volume.repository_dir / "m"
    top.mkdir()
    folder = os.open(top, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("d", dir_fd=folder)
        below = os.open("d", os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = below
    os.close(folder)
    before = leftovers()
    try:
        volume.discard(top)
        assert not top.exists()
        assert leftovers() == before + len(list(volume.trash_dir.iterdir()))
    finally:
        subprocess.run(["rm", "-rf", *volume.trash_dir.iterdir()], check=True)


@pytest.fixture
def broken(volume, monkeypatch):
    """An artifact that had to leave while the disk was read-only, of a disk that is mended."""
    monkeypatch.setattr("adapter.volume.volume.RETRY_SECONDS", 0.0)
    volume.claim()
    path = volume.artifacts_dir / "m"
    (path / "1").mkdir(parents=True)
    (path / "1" / "f").write_bytes(b"old")
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", failing(errno.EROFS))
        volume.discard(path)
    assert (path / "1" / "f").read_bytes() == b"old"
    assert volume.left_bytes() == 3
    return path


def test_what_a_read_only_disk_has_kept_is_whole_and_goes_later(volume, broken):
    """Half of it would be worse than all of it. The next write takes it away."""
    volume.discard(volume.new_staging())

    assert not broken.exists()
    assert list(volume.trash_dir.iterdir()) == []
    assert volume.left_bytes() == 0
