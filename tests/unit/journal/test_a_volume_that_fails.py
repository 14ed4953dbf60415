"""A full disk, a volume that is gone or hangs: no note raises, nobody waits who need not, and no file is left that is not true."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from adapter import journal as journal_module
from adapter.journal import JournalProblem
from tests.unit.journal.journals import Rig, a_record


class Disk:
    """How many bytes the journal's files may have in all, and whether anything can be written now."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.size: float = float("inf")
        self.goes_on = threading.Event()
        self.goes_on.set()
        self.is_reached = threading.Event()
        self.tries = 0

    def hold(self) -> None:
        """Let the next write wait."""
        self.is_reached.clear()
        self.goes_on.clear()

    async def reached(self) -> None:
        """Return when a write waits."""
        await asyncio.get_running_loop().run_in_executor(None, self.is_reached.wait, 20)

    def write(self, descriptor: int, data: bytes | memoryview) -> int:
        self.tries += 1
        self.is_reached.set()
        self.goes_on.wait()
        room = self.size - sum(path.stat().st_size for path in self.folder.glob("journal*") if path.is_file())
        if room <= 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return REAL_WRITE(descriptor, data[: int(min(room, len(data)))])


REAL_WRITE = os.write


@pytest.fixture
def disk(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk(rig.folder)
    monkeypatch.setattr(journal_module, "FIRST_PAUSE_SECONDS", 0.02)
    monkeypatch.setattr(os, "write", disk.write)
    yield disk
    disk.goes_on.set()


async def until_read(rig: Rig, ids: set[str]) -> None:
    async with asyncio.timeout(20):
        while True:
            try:
                if set(rig.found().records) == ids:
                    return
            except JournalProblem:  # none, or one that was emptied where its name could not be deleted
                pass
            await asyncio.sleep(0.01)


async def test_a_full_disk_leaves_no_file_rather_than_one_that_is_not_true(rig: Rig, disk: Disk) -> None:
    """One line in the log, however often it is tried; with room again, all that is known is written by itself."""
    journal = rig.start()
    journal.note(a_record("a", state="loading"))
    await journal.written()
    disk.size = 0
    with capture_logs() as told:
        for number in range(50):
            journal.note(a_record("a", state="loaded", size_bytes=number))
            await journal.written()
            assert not rig.path.exists()
        journal.note(a_record("b"))
        async with asyncio.timeout(20):
            tries = disk.tries
            while disk.tries < tries + 3:
                await asyncio.sleep(0.01)
        assert [line["event"] for line in told] == ["journal.dropped"]
        assert told[0]["cause"] == "No space left on device"
        disk.size = float("inf")
        await until_read(rig, {"a", "b"})
    assert [line["event"] for line in told] == ["journal.dropped", "journal.begun_again"]
    assert rig.found().records["a"].size_bytes == 49
    assert [path for path in rig.folder.iterdir() if "new" in path.name] == []


async def test_a_volume_that_hangs_does_not_keep_the_process(rig: Rig, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "END_SECONDS", 0.05)
    journal = rig.start()
    disk.goes_on.clear()
    journal.note(a_record("a"))
    began = time.perf_counter()
    journal.close()
    assert time.perf_counter() - began < 10
    disk.goes_on.set()


async def test_whatever_goes_wrong_in_the_thread_wakes_those_who_wait(rig: Rig, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = rig.start()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: 1 / 0)
        journal.note(a_record("a"))
        await journal.written()
        assert not rig.path.exists()
    journal.note(a_record("b"))
    await until_read(rig, {"a", "b"})


async def test_while_a_file_comes_back_who_waits_waits_for_what_was_noted_meanwhile(rig: Rig, disk: Disk) -> None:
    """Otherwise a kill at that moment would leave an older state than one that was confirmed."""
    journal = rig.start()
    disk.size = 0
    journal.note(a_record("a", size_bytes=1))
    await journal.written()
    disk.is_reached.clear()
    disk.goes_on.clear()
    await disk.reached()
    disk.size = float("inf")
    journal.note(a_record("a", size_bytes=2))
    waiting = asyncio.create_task(journal.written())
    await asyncio.sleep(0)
    assert not waiting.done()

    disk.goes_on.set()
    await waiting

    assert rig.found().records["a"].size_bytes == 2
