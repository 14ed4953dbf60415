"""All that is ours counts, idle artifacts give way first, and only a budget that was set refuses."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from adapter.errors import DiskFull
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from tests.fakes.idle_artifacts import IdleArtifacts
from tests.real.small_disk import small_disk

MIB = 1024 * 1024


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., tuple[Space, IdleArtifacts]]:
    """A budget on a large volume, and what is idle there."""

    def made(max_bytes: int, *, refuses: bool, placed: int = 0) -> tuple[Space, IdleArtifacts]:
        space = Space(tmp_path, max_bytes, refuses=refuses)
        space.counted_by("placed", lambda: placed)
        return space, IdleArtifacts(space, tmp_path)

    return made


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB and 200 inodes."""
    with small_disk(tmp_path / "small") as folder:
        yield folder


def test_what_is_reserved_counts_as_staging_until_it_is_handed_over(make) -> None:
    """The next one that counts it has it then."""
    space, _ = make(100, refuses=True, placed=10)
    with space.reservation() as reserved:
        reserved.grow(30)
        reserved.grow(20)
        reserved.change(-5)
        assert (space.counted_bytes("staging"), space.held_bytes()) == (45, 55)
    assert (space.counted_bytes("staging"), space.held_bytes()) == (0, 10)


def test_idle_artifacts_give_way_before_anything_is_refused(make) -> None:
    """As many as must."""
    space, idle = make(100, refuses=True, placed=40)
    idle.add(10, files=3)
    with space.reservation() as reserved:
        reserved.grow(45)
        assert idle.asked == [15] and len(idle.files) == 1 and space.held_bytes() == 95
        with pytest.raises(DiskFull):
            reserved.grow(16)
        assert len(idle.files) == 1, "no idle file is deleted for what is refused all the same"
        reserved.grow(15)
        assert idle.files == [] and space.held_bytes() == 100


def test_a_default_only_makes_idle_artifacts_go(make) -> None:
    """Placed models alone may be more."""
    space, idle = make(100, refuses=False, placed=80)
    idle.add(10)
    with space.reservation() as reserved:
        reserved.grow(500)
        assert idle.files == [] and space.held_bytes() == 580
        reserved.grow(500)
        assert len(idle.asked) == 1, "idle files are not listed for what is not there, which takes long where much is placed"


@pytest.mark.parametrize("_round", range(10))
def test_of_those_who_fit_alone_only_one_is_told_so(tmp_path: Path, _round: int) -> None:
    """Whichever thread asks first, and however long idle artifacts take to go."""
    space = Space(tmp_path, 100, refuses=True)
    IdleArtifacts(space, tmp_path).add(50)
    start, ended = threading.Barrier(8), threading.Barrier(8)
    fitted: list[bool] = []
    held: list[int] = []

    def ask() -> None:
        start.wait(20)
        with space.reservation() as reserved:
            try:
                reserved.grow(60)
                fitted.append(True)
            except DiskFull:
                fitted.append(False)
            held.append(space.held_bytes())
            ended.wait(20)

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(fitted) == [False] * 7 + [True] and max(held) <= 100


def test_leftovers_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be deleted takes space until it can."""
    volume = Volume(tmp_path / "r", tmp_path / "c")
    volume.claim()
    space = Space(volume.cache_dir, 100, refuses=True)
    space.counted_by("trash", volume.left_bytes)
    artifact = volume.artifacts_dir / "old"
    artifact.mkdir()
    (artifact / "file").write_bytes(bytes(80))
    (artifact / "second name").hardlink_to(artifact / "file")
    (artifact / "also placed").write_bytes(bytes(1000))
    (volume.repository_dir / "placed").hardlink_to(artifact / "also placed")
    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", failing(errno.EACCES))
        volume.discard(artifact)
    assert space.counted_bytes("trash") == 80
    with space.reservation() as reserved, pytest.raises(DiskFull, match="not deleted yet 80 bytes"):
        reserved.grow(30)
    volume.close()
    volume.claim()
    assert space.counted_bytes("trash") == 0
    volume.close()


def test_idle_artifacts_give_way_when_the_volume_is_full(small: Path) -> None:
    """Its own bound, though the budget is larger."""
    space = Space(small, 100 * MIB, refuses=True)
    idle = IdleArtifacts(space, small)
    idle.add(MIB, files=6)
    with space.reservation() as reserved:
        reserved.grow(5 * MIB)
        (small / "new").write_bytes(bytes(5 * MIB))
        reserved.wrote(5 * MIB)
    assert len(idle.files) == 3


@pytest.mark.parametrize(("refuses", "left"), [(False, 1), (True, 2)])
def test_a_default_leaves_a_fifth_of_the_disk_free(small: Path, refuses: bool, left: int) -> None:
    """Kubernetes evicts the pods of a node whose disk is full, whatever filled it; a budget that was set takes that into account."""
    (small / "foreign").write_bytes(bytes(4 * MIB))
    space = Space(small, 100 * MIB, refuses=refuses)
    idle = IdleArtifacts(space, small)
    idle.add(MIB, files=2)
    with space.reservation() as reserved:
        reserved.grow(MIB)
        assert len(idle.files) == left
        reserved.grow(MIB // 4)
    assert len(idle.files) == left


def test_idle_artifacts_give_way_when_inodes_are_short(small: Path) -> None:
    """Bytes are left, names are not."""
    space = Space(small, 100 * MIB, refuses=False)
    idle = IdleArtifacts(space, small)
    idle.add(1, files=150)
    with space.reservation() as reserved:
        for number in range(100):
            reserved.insist((small / f"new{number}").touch)
        assert len(idle.files) <= 99


def test_a_write_goes_on_when_the_volume_fills_up_meanwhile(small: Path) -> None:
    """Another process writes there, too: reserving proves nothing."""
    space = Space(small, 0, refuses=False)
    idle = IdleArtifacts(space, small)
    idle.add(MIB, files=4)
    with space.reservation() as reserved:
        reserved.grow(3 * MIB)
        (small / "foreign").write_bytes(bytes(3 * MIB))
        file = os.open(small / "new", os.O_CREAT | os.O_WRONLY)
        for part in range(12):
            assert reserved.insist(lambda part=part: os.pwrite(file, bytes(MIB // 4), part * MIB // 4)) == MIB // 4
            reserved.wrote(MIB // 4)
        reserved.insist(lambda: os.posix_fallocate(file, 3 * MIB, MIB))
        assert len(idle.files) == 1
        with pytest.raises(OSError, match="No space left"):
            reserved.insist(lambda: os.posix_fallocate(file, 4 * MIB, 8 * MIB))
        assert idle.files == []
        os.close(file)


def failing(number: int) -> Callable[..., None]:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail
