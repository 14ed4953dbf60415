"""The whole adapter as a process: a load of many small files over the SPI, beside the adapter in Go."""

from __future__ import annotations

from tests.benchmark.amounts import Amounts
from tests.benchmark.contest import Entry, Rule, contest
from tests.benchmark.over_spi import GO, OVER_SPI
from tests.benchmark.pulls import FAR, LOOPBACK
from tests.benchmark.report import Finding
from tests.benchmark.rig import BenchServer

MODEL = "many/model.savedmodel"


def whole(amounts: Amounts) -> Finding:
    """A load of many small files over the SPI, beside the adapter in Go."""
    finding = Finding("whole", "a load through the whole adapter, over the SPI")
    files = Rule(lambda figures: amounts.files / figures.seconds, "files/s")
    specs = [f"{MODEL}/variables/{{}}={amounts.files - 1}x64KiB", f"{MODEL}/saved_model.pb=64KiB"]
    for network in (LOOPBACK, FAR[0]):
        with BenchServer(network, specs) as server:
            entries = [Entry(client, server, "many") for client in (OVER_SPI, GO)]
            contest(finding, f"{amounts.files} × 64 KiB, {network.name}", entries, files, amounts.rounds)
    finding.notes.append("The adapter in Go sees the first page of a listing alone, so the server gives 1,000 rows a page.")
    return finding
