"""Where the CPU goes, in the three runs that matter: a large object, many small files, many loads."""

from __future__ import annotations

import asyncio
import cProfile
import os
import pstats
import time
from collections import Counter

from adapter.settings import Settings
from adapter.telemetry import logs
from tests.benchmark.amounts import Amounts
from tests.benchmark.lifecycle import bridge
from tests.benchmark.pulls import BIG, LOOPBACK, MANY, TLS
from tests.benchmark.report import Finding
from tests.benchmark.rig import OURS, BenchServer, measured
from tests.benchmark.sampling import shown

FILES_TIMES, LOADS = 5, 1000
MOST = 8


def profile(amounts: Amounts) -> Finding:
    """Shares of the CPU by function. Sampling costs a little, so nothing else is told."""
    finding = Finding("profile", "where the CPU goes")
    many = amounts.files * FILES_TIMES
    for network, prefix, what in ((LOOPBACK, BIG, amounts.size), (TLS, BIG, amounts.size), (LOOPBACK, MANY, f"{many} × 64 KiB")):
        with BenchServer(network, [f"{BIG}={amounts.size}", f"{MANY}/{{}}={many}x64KiB"]) as server:
            job = server.job(prefix, amounts.place, is_sampled=True)
            figures = measured(OURS, server, job, amounts.place, is_checked=False)
        _tell(finding, f"{what}, {network.name}", figures.more["shares"])
    with open(os.devnull, "w") as nowhere:
        logs.configure(Settings.from_env({"CONTAINER_MEM_REQ_BYTES": "1GiB", "LOG_FORMAT": "json"}).telemetry, nowhere)
        _tell(finding, f"{min(LOADS, amounts.files)} loads and unloads", asyncio.run(_loads(min(LOADS, amounts.files))))
    finding.notes.append(
        "Bytes: a thread is seen when it lets go of the interpreter, so Python's part shows at the system call that follows."
    )
    finding.notes.append("Loads: the fake Triton and the caller run in the same thread, and are seen as well.")
    return finding


async def _loads(count: int) -> dict[str, list[tuple[str, float]]]:
    """Of the thread of the event loop, each call counted: what runs there is short, and no sampler sees it."""
    profiler = cProfile.Profile(time.thread_time)
    async with bridge() as rig:
        profiler.enable()
        for number in range(count):
            await rig.load(f"m{number}")
        for number in range(count):
            await rig.unload(f"m{number}")
        profiler.disable()
    rooms: Counter[str] = Counter()
    functions: Counter[str] = Counter()
    entries: dict[tuple[str, int, str], tuple[int, int, float, float, object]] = pstats.Stats(profiler).stats  # type: ignore[attr-defined]
    for (path, _, function), (_, _, seconds, *_) in entries.items():
        place = shown(path, function)
        functions[place] += seconds  # type: ignore[assignment] # seconds
        rooms["/".join(place.split("/")[:2]).partition(":")[0]] += seconds  # type: ignore[assignment] # seconds
    total = sum(functions.values()) or 1.0
    return {
        name: [(where, seconds / total) for where, seconds in found.most_common(MOST)]
        for name, found in (("functions of the loop's thread", functions), ("rooms and libraries", rooms))
    }


def _tell(finding: Finding, case: str, shares: dict[str, list[tuple[str, float]]]) -> None:
    for side, found in shares.items():
        words = ", ".join(f"{where} {share:.0%}" for where, share in found[:MOST] if share >= 0.01)
        finding.notes.append(f"{case}, {side}: {words}.")
