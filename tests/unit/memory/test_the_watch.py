"""The task that asks and tells: over a file that a reporter might have written, and with an exporter of a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from adapter.errors import NoCapacity
from adapter.memory.report import OLD_SECONDS
from adapter.memory.watch import NOT_TOLD, Watch
from adapter.records import Measure
from adapter.settings import read_group
from adapter.settings.capacity import CapacitySettings
from adapter.units import MIB, Endpoint
from tests.fakes.hell import answering
from tests.fakes.raw_server import Peer
from tests.unit.memory.test_devices import exporting


class Rig:
    """A watch over a file, with a clock of its own."""

    def __init__(self, folder: Path, endpoint: Endpoint | None = None, **settings: str) -> None:
        self.file = folder / "triton-memory"
        self.now = 1000.0
        numbers = {"CONTAINER_MEM_REQ_BYTES": "1GiB", "MEM_BUFFER_BYTES": "128MiB"} | settings
        self.capacity = read_group(CapacitySettings, numbers)
        self.watch = Watch(self.file, endpoint, self.capacity, lambda: self.now)
        self.told: dict[str, Measure] = {}
        self.booked = 0
        self.watch.follow(self.told.__setitem__, lambda: self.booked, lambda: None)

    def write(self, used: float, limit: str = str(1 << 30), kills: int = 0, more: str = "") -> None:
        self.now += 1
        self.file.write_text(f"memory {self.now} {int(used * MIB)} {limit} {kills}\n{more}")

    async def tells(self, used: float, limit: str = str(1 << 30), kills: int = 0, more: str = "") -> None:
        """Write it, and wait until it was taken."""
        self.write(used, limit, kills, more)
        self.watch._is_stirred.set()
        await until(lambda: self.watch._report is not None and self.watch._report.at == self.now)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not holds():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(rig: Rig) -> AsyncIterator[Rig]:
    task = asyncio.create_task(rig.watch.run())
    try:
        yield rig
    finally:
        task.cancel()
        await asyncio.wait({task})


async def test_without_a_reporter_all_is_as_configured_and_it_says_so(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, CAPACITY_SOURCE="measured")) as rig:
        assert rig.watch.notice == NOT_TOLD
        assert rig.watch.in_force(rig.capacity) is rig.capacity
        rig.watch.moved("a", "loading", 1)
        rig.watch.moved("a", "loaded", 1)
        assert not rig.watch.is_unsettled("a")
        rig.watch.check()
        await rig.watch.settled("a")
        await rig.watch.settled()
        assert list(tmp_path.iterdir()) == []


async def test_a_load_is_measured_and_the_reporter_is_asked_meanwhile(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.tells(100)
        assert rig.watch.notice is None
        rig.now += 0.1
        rig.watch.moved("a", "loading", 1)
        await until((tmp_path / "triton-memory.asked").exists)
        rig.now += 0.1
        rig.watch.moved("a", "loaded", 1)
        waiting = asyncio.create_task(rig.watch.settled("a"))
        await rig.tells(150)
        await waiting
        assert rig.told == {"a": Measure(50 * MIB, "measured", 0)}


async def test_what_is_old_or_of_the_future_counts_as_not_told(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.tells(100)
        rig.now += OLD_SECONDS + 1
        assert rig.watch.notice == NOT_TOLD
        rig.watch.check()
        rig.file.write_text(f"memory {rig.now + 1000} 5 max 0\n")
        rig.watch._is_stirred.set()
        await asyncio.sleep(0.1)
        assert rig.watch.notice == NOT_TOLD


async def test_nothing_is_loaded_near_the_limit(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        rig.booked = 800 * MIB
        await rig.tells(970)
        rig.watch.check()
        await rig.tells(980)
        with pytest.raises(NoCapacity) as refused:
            rig.watch.check()
        assert refused.value.text == (
            "Triton's memory is nearly full: 980 MiB (1027604480 bytes) measured, 800 MiB (838860800 bytes) announced of loaded models, "
            "limit 1024 MiB (1073741824 bytes); nothing is loaded above 95%"
        )
        await rig.tells(980, limit="max")
        rig.watch.check()


async def test_capacity_is_the_limit_less_what_triton_and_growth_take(tmp_path: Path) -> None:
    async with running(Rig(tmp_path, CAPACITY_SOURCE="measured")) as rig:
        await rig.tells(100, limit=str(2 << 30))
        await rig.watch.settled()
        assert rig.watch.in_force(rig.capacity).capacity_bytes == (2 << 30) - 128 * MIB, "the buffer is more than the base"
        await rig.tells(200, limit=str(2 << 30))
        assert rig.watch.in_force(rig.capacity).capacity_bytes == (2 << 30) - 200 * MIB
        await rig.tells(200, limit=str(201 * MIB))
        assert rig.watch.in_force(rig.capacity) is rig.capacity, "nothing is left: as configured"


async def test_a_buffer_that_is_too_small_is_told_and_changes_nothing(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.tells(200)
        assert rig.watch.notice is not None
        assert rig.watch.notice.startswith("MEM_BUFFER_BYTES (128 MiB (134217728 bytes)) is too small: Triton takes 200 MiB")
        assert rig.watch.in_force(rig.capacity) is rig.capacity


async def test_a_kill_of_the_kernel_is_told_with_the_model_that_was_loading(tmp_path: Path) -> None:
    async with running(Rig(tmp_path)) as rig:
        await rig.tells(100, kills=3)
        rig.watch.moved("huge", "loading", 1)
        with capture_logs() as logs:
            await rig.tells(90, kills=5)
        assert (
            rig.watch.notice
            == "the kernel has killed 2 processes of Triton's container for want of memory, the last one while it was loading huge"
        )
        assert [(log["event"], log["loading"]) for log in logs if log["log_level"] == "error"] == [("triton.oom_killed", ["huge"])]
        await rig.tells(90, kills=0)
        assert "killed 2 processes" in (rig.watch.notice or ""), "another container begins to count anew"


async def test_a_model_on_a_gpu_has_the_size_that_it_takes_there(tmp_path: Path) -> None:
    used = [100]

    def answer(peer: Peer) -> None:
        text = "".join(f'nv_gpu_memory_{kind}_bytes{{gpu_uuid="g"}} {mib * MIB}\n' for kind, mib in (("used", used[0]), ("total", 1000)))
        answering(200, body=text.encode())(peer)

    with exporting(answer) as endpoint:
        async with running(Rig(tmp_path, endpoint)) as rig:
            await rig.tells(100)
            await until(lambda: rig.watch._has_devices)
            rig.now += 0.1
            rig.watch.moved("a", "loading", 1)
            used[0] = 400
            rig.watch.moved("a", "loaded", 1)
            await rig.tells(105)
            await asyncio.sleep(0.5)
            assert not rig.told
            rig.now += 3
            await until(lambda: "a" in rig.told)
        assert rig.told["a"] == Measure(300 * MIB, "measured", 0)
