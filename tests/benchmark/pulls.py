"""Phases about bytes: one large object, many small ones, four stores, many models at once, checksums."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace

from tests.benchmark.amounts import Amounts
from tests.benchmark.contest import Entry, Rule, contest, files_a_second, rate
from tests.benchmark.gauge import MIB
from tests.benchmark.report import Finding, Row
from tests.benchmark.rig import OURS, BenchServer, Network
from tests.benchmark.server.stock import size_of

LOOPBACK = Network("loopback, http")
TLS = Network("loopback, https", is_tls=True)
FAR = (Network("10 ms, 50 MB/s a connection", 10, 50), Network("30 ms, 50 MB/s a connection", 30, 50))
SMALL_NETWORKS = (Network("loopback, http", has_whole_pages=True), Network("20 ms", 20, has_whole_pages=True))
BIG = "big/model.onnx"
SMALL = "small/model.onnx"
MANY = "many"
STORES = ("s3", "gcs", "azure", "http")
MOST_MIB = 256
"""That a pull may take above idle."""


def pull(amounts: Amounts) -> Finding:
    """One large object, near and far."""
    finding = Finding("pull", f"one object of {amounts.size}")
    for network in (LOOPBACK, TLS, *FAR):
        with BenchServer(network, [f"{BIG}={amounts.size}"]) as server:
            entries = [Entry(client, server, BIG) for client in (OURS, *amounts.peers)]
            found = contest(finding, network.name, amounts.place, entries, rate(size_of(amounts.size)), amounts.rounds)
        above = max((figures.above_idle_mib for figures in found.get(OURS.name, ())), default=None)
        if above is not None:
            finding.rows += _beside("pull", f"memory above idle, {network.name}", above, ("goal", MOST_MIB), "MiB", is_more_better=False)
    finding.notes.append(
        f"CPU in seconds. Clients that can be told have {amounts.place.threads} threads; ours, boto3 and awscrt choose by themselves."
    )
    return finding


def small(amounts: Amounts) -> Finding:
    """Many small objects, near and far."""
    finding = Finding("small", f"{amounts.files} files of 64 KiB")
    for network in SMALL_NETWORKS:
        with BenchServer(network, many_of(amounts)) as server:
            entries = [Entry(client, server, MANY) for client in (OURS, *amounts.peers) if client.name != "plain"]
            contest(finding, network.name, amounts.place, entries, files_a_second(amounts.files), amounts.rounds)
    finding.notes.append(
        "CPU in milliseconds a file. Ours, rclone and the adapter in Go list first; the others are told the keys. "
        "rclone asks for the head of each file before the file, as it does by default."
    )
    return finding


def stores(amounts: Amounts) -> Finding:
    """The same objects from each kind of store; S3 is what the others are measured against."""
    finding = Finding("stores", f"{amounts.size}, and {amounts.files} × 64 KiB, from each kind of store")
    for network in (LOOPBACK, TLS):
        with BenchServer(network, [f"{BIG}={amounts.size}", *many_of(amounts)]) as server:
            for prefix, rule, kinds in ((BIG, rate(size_of(amounts.size)), STORES), (MANY, files_a_second(amounts.files), STORES[:3])):
                entries = [Entry(OURS, server, prefix, {"store": store}, store) for store in kinds]
                what = amounts.size if prefix == BIG else f"{amounts.files} × 64 KiB"
                contest(finding, f"{what}, {network.name}", amounts.place, entries, rule, amounts.rounds)
    finding.rows = [each for row in finding.rows for each in _against_s3(row, finding.rows)]
    finding.notes.append("A web server has no listings, so it gives single files alone. CPU: seconds, and milliseconds a file.")
    return finding


def fair(amounts: Amounts) -> Finding:
    """Many models at once share the link; a small one does not wait for a large one."""
    finding = Finding("fair", "models beside each other")
    for network in (LOOPBACK, FAR[0]):
        with BenchServer(network, [f"m/{{}}={amounts.models}x50MiB", f"{BIG}={amounts.size}", f"{SMALL}=10MiB"]) as server:
            _at_once(finding, amounts, server)
            _during(finding, amounts, server)
    return finding


def _at_once(finding: Finding, amounts: Amounts, server: BenchServer) -> None:
    case = f"{amounts.models} models of 50 MiB at once, {server.network.name}"
    entries = [Entry(OURS, server, "m/", {"plan": "each"}), Entry(OURS, server, "m/00000", name="one alone")]
    moved = Rule(lambda figures: figures.counts["bytes"] / MIB / figures.seconds, "MiB/s")
    runs = contest(finding, f"{case}, rate of all", amounts.place, entries, moved, amounts.rounds).get(OURS.name, [])
    shares = sorted(min(run.more["seconds"]) / max(run.more["seconds"]) for run in runs)
    if shares:
        middle = shares[len(shares) // 2]
        finding.rows += _beside("fair", f"{case}, first to arrive ÷ last", middle, ("all at the same time", 1.0), "", is_more_better=True)


def _during(finding: Finding, amounts: Amounts, server: BenchServer) -> None:
    both = [(key, server.items[key].size_bytes) for key in (BIG, SMALL)]
    two = {"env": {"LOADING_CONCURRENCY": "2"}}  # with one, ModelMesh would not ask for the second
    entries = [Entry(OURS, server, SMALL, {"plan": "during", "keys": both, **two}), Entry(OURS, server, SMALL, two, "alone")]
    waited = Rule(lambda figures: figures.more["seconds"][-1] * 1000, "ms", is_more_better=False)
    case = f"10 MiB during {amounts.size}, {server.network.name}"
    runs = contest(finding, case, amounts.place, entries, waited, amounts.rounds).get(OURS.name, [])
    if missed := sum(not run.more["was_during"] for run in runs):
        finding.notes.append(f"{case}: {missed} of {len(runs)} large pulls had ended before the small one.")


def checks(amounts: Amounts) -> Finding:
    """What it costs that a store tells checksums of whole objects, and that they are compared."""
    finding = Finding("checks", f"one object of {amounts.size}, whose store tells its checksum")
    for store, kind in (("s3", "crc32"), ("gcs", "crc32c")):
        for network in (LOOPBACK, FAR[0]):
            with ExitStack() as stack:
                both = (replace(network, checksums=kind), network)
                told, bare = (stack.enter_context(BenchServer(each, [f"{BIG}={amounts.size}"])) for each in both)
                options = {"store": store}
                entries = [Entry(OURS, told, BIG, options), Entry(OURS, bare, BIG, options, "nothing told")]
                case = f"{store} with {kind}, {network.name}"
                contest(finding, case, amounts.place, entries, rate(size_of(amounts.size)), amounts.rounds)
    return finding


def many_of(amounts: Amounts) -> list[str]:
    """Small files that a TensorFlow model could have: what the server is told."""
    folder = f"{MANY}/model.savedmodel"
    return [f"{folder}/variables/{{}}={amounts.files - 1}x64KiB", f"{folder}/saved_model.pb=64KiB"]


def _beside(phase: str, case: str, value: float, other: tuple[str, float], unit: str, *, is_more_better: bool) -> list[Row]:
    """Ours and a figure that nobody has measured."""
    return [Row(phase, case, name, figure, unit, is_more_better) for name, figure in ((OURS.name, value), other)]


def _against_s3(row: Row, rows: list[Row]) -> list[Row]:
    """A store as a case of its own, with S3 as its peer."""
    case = f"{row.case}: {row.client}"
    s3 = [each for each in rows if each.client == "s3" and each.case == row.case and each is not row]
    return [
        replace(row, case=case, client=OURS.name),
        *(replace(each, case=case, cpu=None, above_idle_mib=None, counts={}) for each in s3),
    ]
