"""
The HTTP fronts beside Triton's own: the same Triton, the same models, the same bytes, one client.

Blocks of requests go to one and to the other in turn, each over a connection that is kept. Ratios are those of neighbouring blocks, so
that a machine that becomes slower or faster meanwhile does them no harm.
"""

from __future__ import annotations

import json
import statistics
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import numpy as np

from tests.benchmark.amounts import Amounts
from tests.benchmark.fronts_client import Client, binary_request, json_request, percentile, posted
from tests.benchmark.fronts_unload import TRITONS, unloads
from tests.benchmark.gauge import exact_cpu_seconds_of
from tests.benchmark.report import OURS, Finding, Row
from tests.fronts.bed import Pod
from tests.real import models
from tests.real.children import PartError
from tests.real.llm_models import repeat

BLOCKS = 8
"""Pairs of them for each round."""
PACE_MS, TOKENS = 10, 8
"""Of a stream that is paced: time between two answers, and how many."""
BURST = 200
"""Answers of a stream without any pace."""
WARM = 3


@dataclass(frozen=True)
class Case:
    """What is asked, again and again."""

    name: str
    request: bytes
    block: int
    """Requests in a row on one side."""
    goal: float
    """Of ours, as many times that of Triton's own at p50."""


def cases() -> list[Case]:
    """Inference over V2."""
    path = "/v2/models/echo/infer"
    return [
        Case("JSON, 128 floats", json_request(path, 128), 100, 1.3),
        Case("JSON, 200 KB", json_request(path, 22_000), 30, 1.3),
        Case("JSON, 3 MB", json_request(path, 330_000), 6, 1.0),
        Case("binary, 128 floats", binary_request(path, 128), 100, 1.2),
        Case("binary, 600 KB", binary_request(path, 150_000), 30, 1.2),
    ]


def stream_request(count: int, pace_ms: int) -> bytes:
    """Of `repeat`: the first answer at once, the others at a pace."""
    body = {"IN": list(range(count)), "DELAY": [0] + [pace_ms] * (count - 1)}
    return posted("/v2/models/repeat/generate_stream", json.dumps(body).encode())


@dataclass
class Times:
    """Milliseconds by side, a list for each block."""

    blocks: dict[str, list[list[float]]] = field(default_factory=lambda: {OURS: [], TRITONS: []})
    cpu_ms: float = 0.0
    """Of the adapter, for each of its requests."""

    def all(self, side: str) -> list[float]:
        """Of all blocks."""
        return [time for block in self.blocks[side] for time in block]

    def by_block(self, how: Callable[[float, float], float]) -> list[float]:
        """Medians of neighbouring blocks, ours and the other's, made one."""
        pairs = zip(self.blocks[OURS], self.blocks[TRITONS], strict=True)
        return [how(statistics.median(ours), statistics.median(theirs)) for ours, theirs in pairs]


def fronts(amounts: Amounts) -> Finding:
    """The HTTP fronts beside Triton's own: the same Triton, the same client."""
    finding = Finding("fronts", "HTTP fronts beside Triton's own")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        try:
            pod = stack.enter_context(Pod(folder))
        except PartError as error:
            finding.wrong.append(str(error).splitlines()[0])
            return finding
        for name, files in (("echo", models.affine(1, 0)), ("repeat", repeat())):
            pod.load(name, files)
        sides = {side: stack.enter_context(closing(Client(port))) for side, port in ((OURS, pod.v2.port), (TRITONS, pod.triton.http_port))}
        for case in cases():
            if not _are_alike(sides, case):
                finding.wrong.append(f"{case.name}: ours and Triton's own answer differently")
            times = _timed(case, sides, BLOCKS * amounts.rounds, pod.adapter.pid)
            finding.rows += _rows(case, times)
            print(f"   {case.name}: {statistics.median(times.by_block(lambda ours, theirs: ours / theirs)):.2f} × at p50", flush=True)
        finding.rows += _streams(sides, BLOCKS * amounts.rounds)
        unloads(finding, pod, amounts.rounds)
    finding.notes.append(
        f"Blocks in turn, over one connection that is kept; p50 beside that of Triton's own: median of {BLOCKS * amounts.rounds} pairs of "
        "neighbouring blocks, from … to: their quartiles. The model gives back what it is given. CPU: milliseconds of the adapter for a "
        "request; Triton's own front runs inside Triton."
    )
    return finding


def _are_alike(sides: Mapping[str, Client], case: Case) -> bool:
    """Whether both give the same numbers; it warms them, too."""
    bodies = [client.ask(case.request) for client in sides.values() for _ in range(WARM)]
    return np.array_equal(_numbers_in(bodies[0]), _numbers_in(bodies[-1]))


def _numbers_in(body: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    value, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    output = value["outputs"][0]
    return np.array(output["data"], np.float32) if "data" in output else np.frombuffer(body[end:], np.float32)


def _timed(case: Case, sides: Mapping[str, Client], blocks: int, pid: int) -> Times:
    found, cpu = Times(), 0.0
    for _ in range(blocks):
        for side, client in sides.items():
            before = exact_cpu_seconds_of(pid)
            found.blocks[side].append([client.timed(case.request) for _ in range(case.block)])
            cpu += exact_cpu_seconds_of(pid) - before if side == OURS else 0.0
    found.cpu_ms = cpu * 1000 / (blocks * case.block)
    return found


def _rows(case: Case, times: Times) -> list[Row]:
    rows = []
    for what, part in (("p50", 50), ("p99", 99)):
        for side in (OURS, TRITONS):
            cpu = times.cpu_ms if side == OURS and part == 50 else None
            rows.append(Row("fronts", f"{case.name}, {what}", side, percentile(times.all(side), part), "ms", False, cpu=cpu))
    low, middle, high = statistics.quantiles(times.by_block(lambda ours, theirs: ours / theirs))
    name = f"{case.name}, p50 beside that of Triton's own"
    return [*rows, Row("fronts", name, OURS, middle, "times", False, low, high), Row("fronts", name, "goal", case.goal, "times", False)]


def _streams(sides: Mapping[str, Client], blocks: int) -> list[Row]:
    """The first event, the time between two, and the events of a stream without pace."""
    first, gaps, burst = Times(), Times(), Times()
    paced, fast = stream_request(TOKENS, PACE_MS), stream_request(BURST, 0)
    for client in sides.values():
        for request, count in ((paced, TOKENS), (fast, BURST)):
            if len(client.events(request)) != count:
                raise RuntimeError(f"a stream has not {count} events")
    for _ in range(blocks):
        for side, client in sides.items():
            found = [client.events(paced) for _ in range(5)]
            first.blocks[side].append([times[0] for times in found])
            gaps.blocks[side].append([later - earlier for times in found for earlier, later in pairwise(times)])
            burst.blocks[side].append([client.events(fast)[-1] / BURST for _ in range(2)])
    rows = []
    for name, times in (
        ("first token of a stream", first),
        (f"time between two tokens, at a pace of {PACE_MS} ms", gaps),
        (f"each token of {BURST} at once", burst),
    ):
        for what, part in (("p50", 50), ("p99", 99)):
            rows += [Row("fronts", f"{name}, {what}", side, percentile(times.all(side), part), "ms", False) for side in (OURS, TRITONS)]
    low, middle, high = statistics.quantiles(first.by_block(lambda ours, theirs: ours - theirs))
    name = "first token, after that of Triton's own"
    return [*rows, Row("fronts", name, OURS, middle, "ms", False, low, high), Row("fronts", name, "goal", 1.0, "ms", False)]
