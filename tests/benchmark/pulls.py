"""Phases about bytes: one large object; a small one during a large one."""

from __future__ import annotations

from tests.benchmark.amounts import Amounts
from tests.benchmark.contest import Entry, Rule, contest
from tests.benchmark.gauge import MIB
from tests.benchmark.over_spi import ALTERNATIVES
from tests.benchmark.report import Finding
from tests.benchmark.rig import OURS, BenchServer, Network
from tests.benchmark.server.stock import size_of

LOOPBACK = Network("loopback, http")
TLS = Network("loopback, https", is_tls=True)
FAR = (Network("10 ms, 50 MB/s a connection", 10, 50), Network("30 ms, 50 MB/s a connection", 30, 50))
BIG = "big/model.onnx"
SMALL = "small/model.onnx"
MOST_MIB = 256
"""That a pull may take above idle."""


def pull(amounts: Amounts) -> Finding:
    """One large object, near and far."""
    finding = Finding("pull", f"one object of {amounts.size}")
    rate = Rule(lambda figures: size_of(amounts.size) / MIB / figures.seconds, "MiB/s")
    for network in (LOOPBACK, TLS, *FAR):
        with BenchServer(network, [f"{BIG}={amounts.size}"]) as server:
            entries = [Entry(client, server, BIG) for client in (OURS, *ALTERNATIVES)]
            found = contest(finding, network.name, entries, rate, amounts.rounds)
        if runs := found.get(OURS.name):
            above = max(max(0.0, figures.peak_mib - figures.idle_mib) for figures in runs)
            for name, mib in ((OURS.name, above), ("goal", MOST_MIB)):
                finding.add(f"memory above idle, {network.name}", name, mib, "MiB")
    finding.notes.append("Clients that can be told have 8 threads; ours and awscrt choose by themselves.")
    return finding


def fair(amounts: Amounts) -> Finding:
    """A small model does not wait for a large one."""
    finding = Finding("fair", "models beside each other")
    with BenchServer(FAR[0], [f"{BIG}={amounts.size}", f"{SMALL}=10MiB"]) as server:
        both = [(key, server.items[key].size_bytes) for key in (BIG, SMALL)]
        two = {"env": {"LOADING_CONCURRENCY": "2"}}  # with one, ModelMesh would not ask for the second
        entries = [Entry(OURS, server, SMALL, {"is_during": True, "keys": both, **two}), Entry(OURS, server, SMALL, two, "alone")]
        waited = Rule(lambda figures: figures.more["seconds"][-1] * 1000, "ms", is_more_better=False)
        case = f"10 MiB during {amounts.size}, {FAR[0].name}"
        runs = contest(finding, case, entries, waited, amounts.rounds).get(OURS.name, [])
    if missed := sum(not run.more["was_during"] for run in runs):
        finding.notes.append(f"{case}: {missed} of {len(runs)} large pulls had ended before the small one.")
    return finding
