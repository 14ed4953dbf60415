"""The task that asks and tells: over a file that a reporter might have written, and with an exporter of a GPU."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from adapter.errors import NoCapacity
from adapter.memory import watch
from adapter.memory.devices import Device
from adapter.memory.report import OLD_SECONDS
from adapter.memory.watch import IDLE_SECONDS, NOT_TOLD, Watch
from adapter.records import Measure
from adapter.settings import read_group
from adapter.settings.capacity import CapacitySettings
from adapter.units import MIB, Endpoint
from tests.fakes.hell import answering
from tests.fakes.raw_server import Peer
from tests.fakes.world import FakeJournal, Process, World
from tests.unit.memory.test_devices import exporting


class Rig:
    """A watch over a file, with a clock of its own."""

    def __init__(self, folder: Path, endpoint: Endpoint | None = None, **settings: str) -> None:
        self.file = folder / "triton-memory"
        self.now = 1000.0
        numbers = {"CONTAINER_MEM_REQ_BYTES": "1GiB", "MEM_BUFFER_BYTES": "128MiB"} | settings
        self.capacity = read_group(CapacitySettings, numbers)
        self.journal = FakeJournal(World(), Process())
        self.told: dict[str, Measure] = {}
        self.booked: int | None = 0
        self.begin(endpoint)

    def begin(self, endpoint: Endpoint | None = None) -> None:
        """The watch of a process of the adapter."""
        self.watch = Watch(self.file, endpoint, self.capacity, self.journal, lambda: self.now)
        self.watch.follow(self.told.__setitem__, lambda: self.booked, lambda: None)

    def write(self, used: float, limit: str = str(1 << 30), kills: int = 0, more: str = "") -> None:
        self.now += 1
        self.file.write_text(f"memory {self.now} {int(used * MIB)} {limit} {kills}\n{more}later\n")

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


async def test_base_and_reserve_outlive_the_adapter(tmp_path: Path) -> None:
    """The next process begins beside the models that Triton has: what it sees before it knows them is no base."""
    rig = Rig(tmp_path, CAPACITY_SOURCE="measured")
    async with running(rig):
        await rig.tells(100, limit=str(2 << 30))
        rig.watch.moved("a", "loading", 1)
        rig.watch.moved("a", "loaded", 1)
        rig.booked = 300 * MIB
        await rig.tells(400, limit=str(2 << 30))
        await rig.tells(450, limit=str(2 << 30))
        assert rig.watch.in_force(rig.capacity).capacity_bytes == (2 << 30) - 150 * MIB
    rig.booked = None
    rig.begin()
    async with running(rig):
        await rig.tells(450, limit=str(2 << 30))
        rig.watch.moved("a", "loaded", 1)
        rig.booked = 300 * MIB
        await rig.tells(460, limit=str(2 << 30))
        assert rig.watch.in_force(rig.capacity).capacity_bytes == (2 << 30) - 160 * MIB


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


@asynccontextmanager
async def beside_gpus(folder: Path, used: dict[str, int]) -> AsyncIterator[Rig]:
    """MiB of each GPU, as an exporter tells them; each has 1000. The exporter is broken while there is none."""

    def answer(peer: Peer) -> None:
        lines = [f'nv_gpu_memory_used_bytes{{gpu_uuid="{uuid}"}} {mib * MIB}\n' for uuid, mib in used.items()]
        lines += [f'nv_gpu_memory_total_bytes{{gpu_uuid="{uuid}"}} {1000 * MIB}\n' for uuid in used]
        answering(200 if used else 503, body="".join(lines).encode())(peer)

    with exporting(answer) as endpoint:
        async with running(Rig(folder, endpoint)) as rig:
            await rig.tells(100)
            await until(lambda: rig.watch._has_devices)
            yield rig


async def test_a_model_on_a_gpu_has_the_size_that_it_takes_there(tmp_path: Path) -> None:
    used = {"g": 100}
    async with beside_gpus(tmp_path, used) as rig:
        rig.now += 0.1
        rig.watch.moved("a", "loading", 1)
        used["g"] = 400
        rig.watch.moved("a", "loaded", 1)
        await rig.tells(105)
        await asyncio.sleep(0.5)
        assert not rig.told
        rig.now += 3
        await until(lambda: "a" in rig.told)
        assert rig.told["a"] == Measure(300 * MIB, "measured", 0)


async def test_nothing_is_loaded_that_would_pass_the_limit_of_a_gpu(tmp_path: Path) -> None:
    async with beside_gpus(tmp_path, {"g0": 100, "g1": 800}) as rig:
        rig.watch.check(200 * MIB, 2)
        rig.watch.check(900 * MIB, 1)
        rig.watch.check(5000 * MIB, 0)
        with pytest.raises(NoCapacity) as refused:
            rig.watch.check(201 * MIB, 1000)
        assert refused.value.text == (
            "model does not fit: it takes 201 MiB (210763776 bytes) of GPU g1, where 800 MiB (838860800 bytes) are used, "
            "limit 1000 MiB (1048576000 bytes)"
        )
        with pytest.raises(NoCapacity, match="of GPU g0"):
            rig.watch.check(901 * MIB, 1)


async def test_metrics_that_do_not_answer_once_are_asked_again_soon(tmp_path: Path) -> None:
    """A Triton that is busy has its GPUs still."""
    used = {"g": 100}
    async with beside_gpus(tmp_path, used) as rig:
        before = rig.watch._devices_at
        used.clear()
        await rig.tells(100)
        rig.now += IDLE_SECONDS
        await rig.tells(100)
        await until(lambda: rig.watch._devices_at > before)
        with pytest.raises(NoCapacity, match="of GPU g, where 100 MiB"):
            rig.watch.check(1000 * MIB, 1)
        used["g"] = 300
        rig.now += IDLE_SECONDS
        await rig.tells(100)
        await until(lambda: rig.watch.ledger.fullest(1) == ("g", Device(300 * MIB, 1000 * MIB), 0))


async def test_what_an_unload_leaves_in_the_pool_of_a_framework_is_used_again(tmp_path: Path) -> None:
    """Not what others have taken meanwhile."""
    used = {"g": 100}
    async with beside_gpus(tmp_path, used) as rig:
        rig.watch.moved("a", "loading", 1)
        used["g"] = 700
        rig.watch.moved("a", "loaded", 1)
        rig.now += 3
        await rig.tells(105)
        await until(lambda: "a" in rig.told)
        with pytest.raises(NoCapacity, match="where 700 MiB"):
            rig.watch.check(500 * MIB, 1)
        rig.watch.moved("a", "unloading", 1)
        used["g"] = 650
        rig.watch.moved("a", "absent", 1)
        rig.watch.moved("b", "pulling", 1)
        rig.now += 2
        await until(lambda: rig.watch.ledger.fullest(1) == ("g", Device(650 * MIB, 1000 * MIB), 550 * MIB))
        rig.watch.check(900 * MIB, 1)
        with pytest.raises(NoCapacity, match=r"650 MiB .* are used, of which 550 MiB .* are used again, limit"):
            rig.watch.check(901 * MIB, 1)


async def test_each_report_is_asked_for_while_a_model_is_young(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later ones tell no processes, and would take the place of one that does before it is read."""
    monkeypatch.setattr(watch, "YOUNG_LOOK_SECONDS", 0.05)
    asked = tmp_path / "triton-memory.asked"
    async with running(Rig(tmp_path)) as rig:
        await rig.tells(100)
        rig.watch.moved("p", "loading", 1)
        rig.watch.moved("p", "loaded", 1)
        await rig.tells(120, more="stub 1 20480 p\n")
        await until(lambda: "p" in rig.told)
        rig.now += 60
        for mib in (30, 40):
            before = asked.stat().st_mtime_ns
            await until(lambda before=before: asked.stat().st_mtime_ns > before)  # type: ignore[misc] # bound now
            await rig.tells(100 + mib, more=f"stub 1 {mib * 1024} p\n")
            await until(lambda mib=mib: rig.told["p"].size_bytes // MIB == mib)  # type: ignore[misc] # bound now
        rig.now += 600
        await rig.tells(200)
        await until(lambda: not rig.watch.ledger.has_young(rig.now))
        await asyncio.sleep(0.2)
        before = asked.stat().st_mtime_ns
        await asyncio.sleep(0.3)
        assert asked.stat().st_mtime_ns == before
