"""
The HTTP fronts beside Triton's own: the same Triton, the same models, the same bytes, one client.

Blocks of requests go to one and to the other in turn, each over a connection that is kept. Ratios are those of neighbouring blocks, so
that a machine that becomes slower or faster meanwhile does them no harm. Two bounds are measured with them: a process that only passes
bytes to Triton's own front (`relay`), below which nothing that stands between can be, and gRPC's client for Python by itself.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np

from tests.benchmark.amounts import Amounts
from tests.benchmark.fronts_client import Client, GrpcClient, binary_request, json_request, percentile, posted, sleep_request
from tests.benchmark.fronts_unload import TRITONS, unloads
from tests.benchmark.gauge import cpu_seconds_of
from tests.benchmark.report import OURS, Finding, Row
from tests.fronts.rig import FrontsPod
from tests.real import models
from tests.real.children import Child, PartError, bare_environment
from tests.real.llm_models import repeat
from tests.real.ports import free_ports, is_listening

BLOCKS = 8
"""Pairs of them for each round."""
PACE_MS, TOKENS = 10, 8
"""Of a stream that is paced: time between two answers, and how many."""
BURST = 200
"""Answers of a stream without any pace."""
WARM = 3
SLEEP_SECONDS = 0.005
"""Of a model that does its work elsewhere, as on a GPU."""
RELAY = "a relay of bytes"
GRPC = "gRPC alone"
START_SECONDS = 20
RELAY_PROGRAM = Path(__file__).with_name("relay.py")


@dataclass(frozen=True)
class Case:
    """What is asked, again and again."""

    name: str
    request: bytes
    block: int
    """Requests in a row on one side."""
    goal: float
    """Of ours, as many times that of Triton's own at p50."""
    floats: int = 0
    """The same is asked over gRPC, for comparison: so many; 0: it is not."""


def cases() -> list[Case]:
    """Inference over V2."""
    path = "/v2/models/echo/infer"
    return [
        Case("JSON, 128 floats", json_request(path, 128), 100, 1.3),
        Case("JSON, 200 KB", json_request(path, 22_000), 30, 1.3),
        Case("JSON, 3 MB", json_request(path, 330_000), 6, 1.0),
        Case("JSON, a model that takes 5 ms", sleep_request("/v2/models/sleeper/infer", SLEEP_SECONDS), 20, 1.3),
        Case("binary, 128 floats", binary_request(path, 128), 100, 1.2, 128),
        Case("binary, 600 KB", binary_request(path, 150_000), 30, 1.2, 150_000),
    ]


def stream_request(count: int, pace_ms: int) -> bytes:
    """Of `repeat`: the first answer at once, the others at a pace."""
    body = {"IN": list(range(count)), "DELAY": [0] + [pace_ms] * (count - 1)}
    return posted("/v2/models/repeat/generate_stream", json.dumps(body).encode())


class Times:
    """Milliseconds by side, a list for each block."""

    def __init__(self) -> None:
        self.blocks: dict[str, list[list[float]]] = {}
        self.cpu_ms = 0.0
        """Of the adapter, for each of its requests."""

    def add(self, side: str, block: list[float]) -> None:
        """One more."""
        self.blocks.setdefault(side, []).append(block)

    def all(self, side: str) -> list[float]:
        """Of all blocks."""
        return [time for block in self.blocks[side] for time in block]

    def beside_tritons(self, side: str, how: Callable[[float, float], float]) -> list[float]:
        """Quartiles of the medians of neighbouring blocks, the side's and that of Triton's own, made one."""
        pairs = zip(self.blocks[side], self.blocks[TRITONS], strict=True)
        return statistics.quantiles([how(statistics.median(its), statistics.median(tritons)) for its, tritons in pairs])


def fronts(amounts: Amounts) -> Finding:
    """The HTTP fronts beside Triton's own: the same Triton, the same client."""
    finding = Finding("fronts", "HTTP fronts beside Triton's own")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))
        try:
            pod = stack.enter_context(FrontsPod(folder))
        except PartError as error:
            finding.wrong.append(str(error).splitlines()[0])
            return finding
        for name, files in (("echo", models.affine(1, 0)), ("sleeper", models.sleeper()), ("repeat", repeat())):
            pod.load(name, files)
        relay = stack.enter_context(_relay(pod.triton.http_port))
        ports = {OURS: pod.v2.port, TRITONS: pod.triton.http_port, RELAY: relay}
        sides = {side: stack.enter_context(closing(Client(port))) for side, port in ports.items()}
        grpc = stack.enter_context(closing(GrpcClient(pod.triton.grpc_target)))
        for case in cases():
            if not _are_alike(sides, case):
                finding.wrong.append(f"{case.name}: ours and Triton's own answer differently")
            times = _timed(case, sides, grpc, BLOCKS * amounts.rounds, pod.adapter.pid)
            finding.rows += _rows(case, times)
            print(f"   {case.name}: {times.beside_tritons(OURS, _times_as_long)[1]:.2f} × at p50", flush=True)
        finding.rows += _streams(sides, grpc, BLOCKS * amounts.rounds)
        unloads(finding, pod, amounts.rounds)
    finding.notes.append(
        f"Blocks in turn, over one connection that is kept; p50 beside that of Triton's own: median of {BLOCKS * amounts.rounds} pairs of "
        "neighbouring blocks, from … to: their quartiles. The model gives back what it is given. CPU: milliseconds of the adapter for a "
        "request; Triton's own front runs inside Triton."
    )
    finding.notes.append(
        f"“{RELAY}”: another process, which passes the bytes to Triton's own front and back, and looks at none: the least that anything "
        f"between client and Triton can take here. “{GRPC}”: the same tensors by gRPC's client for Python, without any front."
    )
    return finding


@contextmanager
def _relay(to_port: int) -> Iterator[int]:
    """Its port."""
    port = free_ports(1)[0]
    child = Child("relay", [sys.executable, "-I", "-S", RELAY_PROGRAM, str(port), str(to_port)], env=bare_environment())
    try:
        child.wait_until(lambda: is_listening(port), "listening", START_SECONDS)
        yield port
    finally:
        child.kill()


def _are_alike(sides: Mapping[str, Client], case: Case) -> bool:
    """Whether all give the same numbers; it warms them, too."""
    first, *others = (_numbers_in(client.ask(case.request)) for client in sides.values() for _ in range(WARM))
    return all(np.array_equal(first, other) for other in others)


def _numbers_in(body: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    value, end = json.JSONDecoder().raw_decode(body.decode("latin-1"))
    output = value["outputs"][0]
    return np.array(output["data"], np.float32) if "data" in output else np.frombuffer(body[end:], np.float32)


def _timed(case: Case, sides: Mapping[str, Client], grpc: GrpcClient, blocks: int, pid: int) -> Times:
    found, cpu = Times(), 0.0
    asked = {side: partial(client.timed, case.request) for side, client in sides.items()}
    if case.floats:
        asked[GRPC] = partial(grpc.timed, case.floats)
    for _ in range(blocks):
        for side, ask in asked.items():
            before = cpu_seconds_of(pid)
            found.add(side, [ask() for _ in range(case.block)])
            cpu += cpu_seconds_of(pid) - before if side == OURS else 0.0
    found.cpu_ms = cpu * 1000 / (blocks * case.block)
    return found


def _rows(case: Case, times: Times) -> list[Row]:
    rows = []
    for what, part in (("p50", 50), ("p99", 99)):
        for side in times.blocks:
            cpu = times.cpu_ms if side == OURS and part == 50 else None
            rows.append(Row("fronts", f"{case.name}, {what}", side, percentile(times.all(side), part), "ms", False, cpu=cpu))
    return rows + _beside(f"{case.name}, p50 beside that of Triton's own", times, _times_as_long, "times", case.goal)


def _beside(name: str, times: Times, how: Callable[[float, float], float], unit: str, goal: float) -> list[Row]:
    """Every side beside Triton's own."""
    rows = []
    for side in times.blocks:
        if side != TRITONS:
            low, middle, high = times.beside_tritons(side, how)
            rows.append(Row("fronts", name, side, middle, unit, False, low, high))
    return [*rows, Row("fronts", name, "goal", goal, unit, False)]


def _times_as_long(its: float, tritons: float) -> float:
    return its / tritons


def _later(its: float, tritons: float) -> float:
    return its - tritons


def _streams(sides: Mapping[str, Client], grpc: GrpcClient, blocks: int) -> list[Row]:
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
            first.add(side, [times[0] for times in found])
            gaps.add(side, [later - earlier for times in found for earlier, later in pairwise(times)])
            burst.add(side, [client.events(fast)[-1] / BURST for _ in range(2)])
        first.add(GRPC, [grpc.first_token(TOKENS, PACE_MS) for _ in range(5)])
    rows = []
    for name, times in (
        ("first token of a stream", first),
        (f"time between two tokens, at a pace of {PACE_MS} ms", gaps),
        (f"each token of {BURST} at once", burst),
    ):
        for what, part in (("p50", 50), ("p99", 99)):
            rows += [Row("fronts", f"{name}, {what}", side, percentile(times.all(side), part), "ms", False) for side in times.blocks]
    return rows + _beside("first token, after that of Triton's own", first, _later, "ms", 1.0)
