"""
Asks the reporter and Triton's metrics, keeps the ledger, and tells what comes of it: sizes, metrics, notices, refusals.

While something is loaded, unloaded or not measured yet, the reporter is asked twice a second, by the age of a file beside its own;
while a model is young, every two seconds. What hangs (a volume, Triton) keeps a thread of this package and no caller: what was told
last then grows old, and what is old counts as not told.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import structlog

from adapter.errors import NoCapacity
from adapter.memory import devices, report
from adapter.memory.ledger import LEAST_GROWTH_BYTES, Ledger
from adapter.memory.report import OLD_SECONDS, Report
from adapter.ports import Journal
from adapter.records import Measure, Needed
from adapter.settings.capacity import CapacitySettings
from adapter.telemetry import metrics
from adapter.units import Endpoint, show_bytes
from adapter.volume.boot import boot_seconds
from adapter.workers import Workers

TICK_SECONDS, YOUNG_LOOK_SECONDS, IDLE_SECONDS = 0.4, 2.0, 5.0
"""
Between two looks: while something is watched, below the half second of the reporter; while a model is young, below its 2.5 s, so
that each of its reports was asked for; else.
"""
DEVICES_SECONDS, NO_DEVICES_SECONDS = 1.0, 60.0
"""Between two questions for Triton's metrics while something is watched; where there is no GPU."""
SETTLED_SECONDS = 15.0
"""Longest wait for a measurement; ModelMesh waits 30 s for a size."""
NEARLY_FULL = 0.95
"""Share of the limit from which on nothing more is loaded: the kernel kills at all of it."""

NOT_TOLD = "sizes are estimates: nothing beside Triton tells what it takes of memory"

log = structlog.stdlib.get_logger(__name__)


class Watch:
    """As `ports.Memory`. `run` is to run for as long as the adapter does."""

    def __init__(
        self,
        file: Path,
        endpoint: Endpoint | None,
        capacity: CapacitySettings,
        journal: Journal,
        clock: Callable[[], float] = boot_seconds,
    ) -> None:
        """
        Args:
            file: the reporter's.
            endpoint: of Triton's metrics; None: they are not asked for.
            capacity: what is configured.
            journal: keeps base and reserve over a restart of the adapter.
            clock: seconds since the boot of the kernel.
        """
        self._file = file
        self._asked_file = file.with_name(f"{file.name}.asked")
        self._endpoint = endpoint
        self._configured = capacity
        self._journal = journal
        self._clock = clock
        self.ledger = Ledger()
        for known in journal.needed.values():
            self.ledger.base_bytes, self.ledger.reserve_bytes = known.base_bytes, known.reserve_bytes
        self._booked_bytes: Callable[[], int | None] = lambda: 0
        self._on_look: Callable[[], None] = lambda: None
        self._report: Report | None = None
        self._kills = 0
        self._killed = ""
        """Which models were loading when the kernel killed a process, in words."""
        self._problem = ""
        self._devices_at = -NO_DEVICES_SECONDS
        self._has_devices = False
        self._is_stirred = asyncio.Event()
        self._has_looked = asyncio.Event()
        """Set with each look, then replaced."""

    def follow(
        self, on_measured: Callable[[str, Measure], None], booked_bytes: Callable[[], int | None], on_look: Callable[[], None]
    ) -> None:
        """As `ports.Memory`."""
        self.ledger.on_measured, self._booked_bytes, self._on_look = on_measured, booked_bytes, on_look

    def moved(self, model_id: str, state: str, size_bytes: int) -> None:
        """As `ports.Memory`."""
        self.ledger.moved(model_id, state, self._clock(), size_bytes)
        if self.ledger.is_watching:
            self._is_stirred.set()

    def is_unsettled(self, model_id: str) -> bool:
        """As `ports.Memory`."""
        return self.report is not None and self.ledger.is_unsettled(model_id)

    async def settled(self, model_id: str | None = None) -> None:
        """As `ports.Memory`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(SETTLED_SECONDS):
                while self.is_unsettled(model_id) if model_id is not None else self.report and self.ledger.base_bytes is None:
                    self._is_stirred.set()
                    await self._has_looked.wait()

    def check(self, size_bytes: int = 0, gpus: int = 0) -> None:
        """As `ports.Memory`."""
        told, fullest = self.report, self.ledger.fullest(gpus)
        if fullest is not None:
            uuid, device, kept = fullest
            if device.used_bytes - kept + size_bytes > device.total_bytes:
                reused = f", of which {show_bytes(kept)} are used again" if kept else ""
                raise NoCapacity(
                    f"model does not fit: it takes {show_bytes(size_bytes)} of GPU {uuid}, where {show_bytes(device.used_bytes)} are used"
                    f"{reused}, limit {show_bytes(device.total_bytes)}"
                )
        if told is not None and told.limit_bytes and told.used_bytes > NEARLY_FULL * told.limit_bytes:
            announced = show_bytes(self._booked_bytes() or 0)
            raise NoCapacity(
                f"Triton's memory is nearly full: {show_bytes(told.used_bytes)} measured, {announced} announced of "
                f"loaded models, limit {show_bytes(told.limit_bytes)}; nothing is loaded above {NEARLY_FULL:.0%}"
            )

    @property
    def report(self) -> Report | None:
        """What was told last, if that is not old."""
        told = self._report
        return told if told is not None and self._clock() - told.at < OLD_SECONDS else None

    def in_force(self, configured: CapacitySettings) -> CapacitySettings:
        """As `ports.Memory`."""
        told = self.report
        if configured.source != "measured" or told is None or not told.limit_bytes:
            return configured
        buffer_bytes = max(configured.buffer_bytes, self._needed_bytes)
        found = replace(configured, container_memory_bytes=told.limit_bytes, buffer_bytes=buffer_bytes)
        return configured if list(found.problems()) else found

    @property
    def notice(self) -> str | None:
        """As `ports.Memory`."""
        if self.report is None:
            return NOT_TOLD
        words = []
        if self._kills:
            words.append(f"the kernel has killed {self._kills} processes of Triton's container for want of memory{self._killed}")
        if self._configured.source != "measured" and self._needed_bytes > self._configured.buffer_bytes:
            base, reserve = show_bytes(self.ledger.base_bytes or 0), show_bytes(self.ledger.reserve_bytes)
            buffer = f"MEM_BUFFER_BYTES ({show_bytes(self._configured.buffer_bytes)}) is too small"
            words.append(f"{buffer}: Triton takes {base} with no model, and models take {reserve} more than announced")
        return "; ".join(words) or None

    @property
    def _needed_bytes(self) -> int:
        return (self.ledger.base_bytes or 0) + self.ledger.reserve_bytes

    async def run(self) -> None:
        """Until cancelled."""
        threads = Workers("memory", 1)
        try:
            while True:
                is_watching, at = self.ledger.is_watching, self._clock()
                is_young = self.ledger.has_young(at)
                pause = DEVICES_SECONDS if is_watching else IDLE_SECONDS
                is_due = at - self._devices_at >= (pause if self._has_devices else NO_DEVICES_SECONDS)
                endpoint = self._endpoint if is_due else None
                look = threads.submit(self._look, is_asking=is_watching or is_young, endpoint=endpoint)
                told, found = await asyncio.wrap_future(look)
                if told is not None and (self._report is None or told.at > self._report.at):
                    self._take(told)
                if endpoint is not None:
                    self._devices_at = at
                if found is not None:
                    self._has_devices = bool(found)
                    self.ledger.seen_devices(found, at)
                self._on_look()
                self._has_looked.set()
                self._has_looked = asyncio.Event()
                self._is_stirred.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(YOUNG_LOOK_SECONDS if is_young else IDLE_SECONDS):
                        await (asyncio.sleep(TICK_SECONDS) if self.ledger.is_watching else self._is_stirred.wait())
        finally:
            threads.close()

    def _look(self, *, is_asking: bool, endpoint: Endpoint | None) -> tuple[Report | None, dict[str, devices.Device] | None]:
        """In a thread: what the reporter tells, and Triton's metrics if their endpoint is given and answers."""
        if is_asking and self._report is not None:
            with suppress(OSError):  # then the reporter tells every five seconds
                os.close(os.open(self._asked_file, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o644))
                os.utime(self._asked_file, follow_symlinks=False)
        told, problem = None, ""
        try:
            told = report.read(self._file)
            if told is None or told.at > self._clock() + OLD_SECONDS:
                told, problem = None, f"{self._file} is not a current report"
        except OSError as error:
            problem = f"{self._file} cannot be read: {error.strerror}"
        if problem and problem != self._problem:
            log.info("memory.not_told", cause=problem)
        self._problem = problem
        try:
            return told, devices.asked(endpoint) if endpoint is not None else None
        except OSError as error:
            log.debug("memory.devices_not_told", cause=str(error))
            return told, None

    def _take(self, told: Report) -> None:
        before, self._report = self._report, told
        if before is not None and told.oom_kills > before.oom_kills:
            models = self.ledger.loading
            self._kills += told.oom_kills - before.oom_kills
            self._killed = f", the last one while it was loading {', '.join(models)}" if models else ""
            metrics.OOM_KILLS.inc(told.oom_kills - before.oom_kills)
            log.error("triton.oom_killed", kills=self._kills, loading=models, used_bytes=told.used_bytes, limit_bytes=told.limit_bytes)
        self.ledger.seen(told, self._booked_bytes())
        needed = Needed(base_bytes=self.ledger.base_bytes or 0, reserve_bytes=self.ledger.reserve_bytes)
        known = self._journal.needed.get(needed.needed, Needed(base_bytes=0, reserve_bytes=0))
        if max(needed.reserve_bytes - known.reserve_bytes, abs(needed.base_bytes - known.base_bytes)) > LEAST_GROWTH_BYTES:
            self._journal.note(needed)
        kinds = {"used": told.used_bytes, "limit": told.limit_bytes or 0, "base": needed.base_bytes, "reserve": needed.reserve_bytes}
        for kind, number in kinds.items():
            metrics.MEMORY_BYTES.labels(kind).set(number)
