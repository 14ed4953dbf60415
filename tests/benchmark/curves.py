"""Throughput over the size of an object, over the distance of the server, and over connections, as curves."""

from __future__ import annotations

from tests.benchmark.amounts import Amounts
from tests.benchmark.contest import Entry, contest, rate
from tests.benchmark.gauge import MIB
from tests.benchmark.pulls import LOOPBACK
from tests.benchmark.report import Curve, Finding
from tests.benchmark.rig import OURS, BenchServer, Client, Network
from tests.benchmark.server.stock import size_of

SIZES_MIB = (1, 4, 16, 64, 256, 1024, 2048)
LATENCIES_MS = (0, 5, 10, 20, 30, 50)
CONNECTIONS = (1, 2, 4, 8, 16, 32, 64)
CAP_MB = 50
CAPPED = "50 MB/s a connection"
AT_MS = 10
MOST_FAR_BYTES = 512 * MIB
"""Where a connection is capped: enough to see, and done in minutes."""
Series = dict[str, list[tuple[float, float]]]
_DRAWN = ("threads", "rclone", "boto3", "awscrt")


def curves(amounts: Amounts) -> Finding:
    """Throughput over size, over latency, over connections."""
    finding = Finding("curves", "throughput over size, latency and connections")
    most = size_of(amounts.size)
    clients = [OURS, *(peer for peer in amounts.peers if peer.name in _DRAWN)]
    far = min(most, MOST_FAR_BYTES)
    finding.curves += [
        _over_size(finding, amounts, clients, most),
        _over_latency(finding, amounts, clients, far),
        _over_connections(finding, amounts, far),
    ]
    finding.rows.clear()  # they are drawn
    return finding


def _over_size(finding: Finding, amounts: Amounts, clients: list[Client], most: int) -> Curve:
    sizes = [size for size in SIZES_MIB if size * MIB <= most]
    series: Series = {}
    with BenchServer(LOOPBACK, [f"s{size}/model.onnx={size}MiB" for size in sizes]) as server:
        for size in sizes:
            entries = [Entry(client, server, f"s{size}/model.onnx") for client in clients]
            _run(finding, amounts, f"{size} MiB", entries, size * MIB, series, size)
    return Curve("throughput-over-size", "Throughput over the size of a model (loopback)", "MiB", "MiB/s", series, is_x_log=True)


def _over_latency(finding: Finding, amounts: Amounts, clients: list[Client], most: int) -> Curve:
    series: Series = {}
    for latency in LATENCIES_MS:
        with BenchServer(Network(f"{latency} ms, {CAPPED}", latency, CAP_MB), [f"big/model.onnx={most}"]) as server:
            entries = [Entry(client, server, "big/model.onnx") for client in clients]
            _run(finding, amounts, server.network.name, entries, most, series, latency)
    title = f"Throughput over latency ({most // MIB} MiB, {CAPPED})"
    return Curve("throughput-over-latency", title, "milliseconds to the first byte", "MiB/s", series)


def _over_connections(finding: Finding, amounts: Amounts, most: int) -> Curve:
    """Of us, whose connections PULL_THREADS bounds, and of the plain script with as many threads."""
    series: Series = {}
    peers = [peer for peer in amounts.peers if peer.name == "threads"]
    with BenchServer(Network(f"{AT_MS} ms, {CAPPED}", AT_MS, CAP_MB), [f"big/model.onnx={most}"]) as server:
        for count in CONNECTIONS:
            env = {"env": {"PULL_THREADS": str(count), "LOADING_CONCURRENCY": "1"}}
            entries = [
                Entry(OURS, server, "big/model.onnx", env),
                *(Entry(peer, server, "big/model.onnx", {"threads": count}) for peer in peers),
            ]
            _run(finding, amounts, f"{count} connections", entries, most, series, count)
    title = f"Throughput over connections ({most // MIB} MiB, {AT_MS} ms, {CAPPED})"
    return Curve("throughput-over-connections", title, "connections at most (PULL_THREADS)", "MiB/s", series, is_x_log=True)


def _run(finding: Finding, amounts: Amounts, case: str, entries: list[Entry], size_bytes: int, series: Series, at: float) -> None:
    """Each client gets a point."""
    before = len(finding.rows)
    contest(finding, case, amounts.place, entries, rate(size_bytes), amounts.rounds)
    for row in finding.rows[before:]:
        series.setdefault(row.client, []).append((at, row.value))
