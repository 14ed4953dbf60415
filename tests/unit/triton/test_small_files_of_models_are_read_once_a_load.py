"""A small file of a placed model: read once for each placement, never longer than allowed, and never waited for without end."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.errors import InvalidModel, VolumeFailed
from adapter.triton import small_files
from adapter.triton.small_files import KEPT, THREADS, SmallFiles


@pytest.fixture
def files(tmp_path: Path) -> Iterator[SmallFiles]:
    found = SmallFiles(tmp_path, "options", 8)
    yield found
    found.close()


def put(folder: Path, model_id: str, content: bytes) -> Path:
    (folder / model_id).mkdir(exist_ok=True)
    (folder / model_id / "options").write_bytes(content)
    return folder / model_id / "options"


async def test_once_for_each_placement(files: SmallFiles, tmp_path: Path) -> None:
    put(tmp_path, "m", b"one")
    assert await files.read("m", "first") == b"one"
    put(tmp_path, "m", b"two")
    assert [await files.read("m", "first"), await files.read("m", "second")] == [b"one", b"two"]


async def test_there_may_be_none(files: SmallFiles, tmp_path: Path) -> None:
    put(tmp_path, "m", b"one")
    assert await files.read("absent", "first") is None
    assert await files.read("m", None) is None
    assert await files.read("../m", "first") is None
    (tmp_path / "file").write_bytes(b"")
    assert await files.read("file", "first") is None


async def test_it_may_be_a_link(files: SmallFiles, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "options").symlink_to(put(tmp_path, "other", b"there"))
    assert await files.read("m", "first") == b"there"


async def test_what_is_too_long_or_no_file_is_named(files: SmallFiles, tmp_path: Path) -> None:
    put(tmp_path, "m", b"x" * 9)
    (tmp_path / "folder" / "options").mkdir(parents=True)
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "options")
    before = len(os.listdir("/proc/self/fd"))
    for model_id, words in (("m", "options is longer than 8 bytes"), ("folder", "options is no file"), ("pipe", "options is no file")):
        with pytest.raises(InvalidModel, match=words):
            await files.read(model_id, "first")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_what_cannot_be_read_is_tried_again(files: SmallFiles, tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "options").symlink_to("options")
    with pytest.raises(VolumeFailed, match="options of the model cannot be read: Too many levels of symbolic links"):
        await files.read("m", "first")
    (tmp_path / "m" / "options").unlink()
    put(tmp_path, "m", b"one")
    assert await files.read("m", "first") == b"one"


async def test_a_volume_that_hangs_keeps_nobody_for_long(files: SmallFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes late is there for the next."""
    healed = threading.Event()
    read = small_files._content

    def hanging(path: Path, most_bytes: int) -> bytes | None:
        if path.parent.name == "slow":
            healed.wait(30)
        return read(path, most_bytes)

    monkeypatch.setattr(small_files, "_content", hanging)
    monkeypatch.setattr(small_files, "WAIT_SECONDS", 0.05)
    put(tmp_path, "slow", b"late")
    put(tmp_path, "m", b"one")
    for _ in range(8):
        with pytest.raises(VolumeFailed, match=r"options of the model has not been read within 0\.05 s"):
            await files.read("slow", "first")
    monkeypatch.setattr(small_files, "WAIT_SECONDS", 20)
    assert await files.read("m", "first") == b"one"
    healed.set()
    assert await files.read("slow", "first") == b"late"


async def test_files_that_hang_delay_no_model_that_has_none(files: SmallFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    healed = threading.Event()

    def hanging(_path: Path, _most_bytes: int) -> bytes | None:
        healed.wait(30)
        return b""

    monkeypatch.setattr(small_files, "_content", hanging)
    waiting = [asyncio.create_task(files.read(put(tmp_path, f"slow{number}", b"").parent.name, "first")) for number in range(THREADS + 1)]
    (tmp_path / "m").mkdir()
    assert await asyncio.wait_for(files.read("m", "first"), 4) is None
    assert not any(task.done() for task in waiting)
    healed.set()
    assert await asyncio.gather(*waiting) == [b""] * (THREADS + 1)


async def test_no_more_are_remembered_than_a_few(files: SmallFiles, tmp_path: Path) -> None:
    put(tmp_path, "m", b"one")
    assert await files.read("m", "first") == b"one"
    put(tmp_path, "m", b"two")
    for number in range(KEPT):
        await files.read(f"other{number}", "first")
    assert await files.read("m", "first") == b"two"
