"""The whole adapter as a process: a load over the SPI, beside the adapter in Go."""

from __future__ import annotations

from dataclasses import replace

from tests.benchmark.amounts import Amounts
from tests.benchmark.contest import Entry, contest, files_a_second, rate
from tests.benchmark.over_spi import GO, OVER_SPI
from tests.benchmark.pulls import BIG, FAR, LOOPBACK, MANY, TLS, many_of
from tests.benchmark.report import Finding
from tests.benchmark.rig import OURS, BenchServer
from tests.benchmark.server.stock import size_of


def whole(amounts: Amounts) -> Finding:
    """A load over the SPI, beside the adapter in Go, and the `Store` alone."""
    finding = Finding("whole", "a load through the whole adapter, over the SPI")
    for network in (LOOPBACK, TLS, *FAR):
        with BenchServer(replace(network, has_whole_pages=True), [f"{BIG}={amounts.size}", *many_of(amounts)]) as server:
            for prefix, rule in ((BIG, rate(size_of(amounts.size))), (MANY, files_a_second(amounts.files))):
                what = amounts.size if prefix == BIG else f"{amounts.files} × 64 KiB"
                entries = [Entry(OVER_SPI, server, prefix), Entry(GO, server, prefix), Entry(OURS, server, prefix, name="the Store alone")]
                contest(finding, f"{what}, {network.name}", amounts.place, entries, rule, amounts.rounds)
    finding.notes.append("The adapter in Go sees the first page of a listing alone, so the server gives 1,000 rows a page.")
    return finding
