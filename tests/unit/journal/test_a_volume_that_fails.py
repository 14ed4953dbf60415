"""A full disk, a volume that is gone or hangs: no note raises, nobody waits who need not, and no file is left that is not true."""

from __future__ import annotations

import asyncio
import errno
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from adapter.journal import journal as journal_module
from adapter.journal.file import JournalProblem
from tests.unit.journal.journals import Rig, a_record

TOP = Path(__file__).parents[3]


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


async def test_a_volume_that_hangs_holds_up_those_who_wait_and_nobody_else(rig: Rig, disk: Disk) -> None:
    journal = rig.start()
    journal.note(a_record("before"))
    await journal.written()
    disk.goes_on.clear()
    waiting = [asyncio.create_task(_noted(journal, f"m{number}")) for number in range(10)]
    began = time.perf_counter()
    for number in range(1_000):
        journal.note(a_record("many", size_bytes=number))
    await disk.reached()
    for _ in range(100):
        await asyncio.sleep(0)

    assert time.perf_counter() - began < 10
    assert not any(task.done() for task in waiting)
    waiting.pop().cancel()
    disk.goes_on.set()
    await asyncio.gather(*waiting)
    await journal.written()
    assert rig.found().records["many"].size_bytes == 999


async def _noted(journal: journal_module.Journal, model_id: str) -> None:
    journal.note(a_record(model_id))
    await journal.written()


async def test_a_volume_that_hangs_does_not_keep_the_process(rig: Rig, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "END_SECONDS", 0.05)
    journal = rig.start()
    disk.goes_on.clear()
    journal.note(a_record("a"))
    began = time.perf_counter()
    journal.close()
    assert time.perf_counter() - began < 10
    disk.goes_on.set()


async def test_a_folder_that_is_gone_is_a_journal_that_is_dropped(rig: Rig, disk: Disk, tmp_path: Path) -> None:
    journal = rig.start()
    moved = tmp_path.with_name(f"{tmp_path.name}-moved")
    rig.folder.rename(moved)
    journal.note(a_record("a"))
    await journal.written()
    assert not rig.path.exists()

    moved.rename(rig.folder)
    await until_read(rig, {"a"})


async def test_what_cannot_be_written_at_the_start_is_no_trouble(rig: Rig, disk: Disk) -> None:
    disk.size = 0
    journal = rig.start()
    journal.note(a_record("a"))
    await journal.written()
    assert not rig.path.exists()
    disk.size = float("inf")
    await until_read(rig, {"a"})


async def test_whatever_goes_wrong_in_the_thread_wakes_those_who_wait(rig: Rig, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    journal = rig.start()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", lambda *_: 1 / 0)
        journal.note(a_record("a"))
        await journal.written()
        assert not rig.path.exists()
    journal.note(a_record("b"))
    await until_read(rig, {"a", "b"})


REAL_DISK = """
import asyncio, sys
from pathlib import Path
from adapter.journal.journal import Journal
from tests.unit.journal.journals import a_record

async def main(folder):
    path = folder / "journal.jsonl"
    journal = Journal(path, discard=lambda path: path.unlink(missing_ok=True))
    journal.note(a_record("first"))
    await journal.written()
    assert path.exists()
    ballast = open(folder / "ballast", "wb", buffering=0)
    try:
        while True:
            ballast.write(b"x" * 4096)
    except OSError:
        pass
    for number in range(100):
        journal.note(a_record(f"m{number}"))
        await journal.written()
    assert not path.exists(), sorted(folder.iterdir())
    ballast.truncate(0)
    for _ in range(600):
        await asyncio.sleep(0.05)
        if path.exists():
            break
    assert len(path.read_text().splitlines()) == 102, path.read_text()
    journal.close()

asyncio.run(main(Path(sys.argv[1])))
"""


def test_a_small_disk_of_the_kernels_own_that_is_filled_up(tmp_path: Path) -> None:
    """The same with a tmpfs of 128 KiB, in a mount namespace of its own."""
    command = f'mount -t tmpfs -o size=128k tmpfs "{tmp_path}" && exec "{sys.executable}" -B -c "$CODE" "{tmp_path}"'
    environ = {**os.environ, "CODE": REAL_DISK}
    if subprocess.run(["unshare", "--map-root-user", "--mount", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace can be had here")
    done = subprocess.run(
        ["unshare", "--map-root-user", "--mount", "sh", "-c", command], cwd=TOP, env=environ, capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")
