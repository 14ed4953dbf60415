"""The benchmark's server: ranges, conditions, pages, and how far away it seems to be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmark.gauge import Figures
from tests.benchmark.over_spi import OVER_SPI
from tests.benchmark.rig import OF_THEIR_VENV, OURS, PEERS, BenchServer, Client, Network, Place, WrongBytes, check, measured
from tests.benchmark.server.stock import Stock, items_of
from tests.benchmark.server.tongues import Tongues

SPECS = ["big/model.onnx=3MiB", "few/{}=30x1KiB", "with space/a&b=10"]


@pytest.fixture(scope="module")
def server() -> Iterator[BenchServer]:
    with BenchServer(Network("near"), SPECS) as made:
        yield made


@pytest.fixture(scope="module")
def tls_server() -> Iterator[BenchServer]:
    with BenchServer(Network("near", is_tls=True), SPECS) as made:
        yield made


@pytest.fixture
def tongues() -> Tongues:
    return Tongues(Stock(item for spec in SPECS for item in items_of(spec)), "crc32")


@pytest.mark.parametrize("store", ["s3", *(pytest.param(name, marks=pytest.mark.long) for name in ("gcs", "azure"))])
def test_the_adapter_pulls_a_large_object(server: BenchServer, store: str, tmp_path: Path) -> None:
    place = Place(tmp_path)

    figures = measured(OURS, server, server.job("big/model.onnx", place, store=store), place, is_checked=True)

    assert figures.counts["bytes"] >= server.items["big/model.onnx"].size_bytes
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize(("store", "files"), [("s3", 1010), ("gcs", 1010), ("azure", 260)])
def test_the_adapter_pulls_more_than_a_page(store: str, files: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    with BenchServer(Network("near"), [f"many/{{}}={files}x1KiB"]) as server:
        figures = measured(OURS, server, server.job("many", place, store=store), place, is_checked=True)

    assert figures.counts["get"] >= files
    assert figures.counts["list"] >= 2


@pytest.mark.long
@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.name not in OF_THEIR_VENV], ids=lambda peer: peer.name)
def test_alternatives_pull_every_byte(server: BenchServer, tls_server: BenchServer, peer: Client, tmp_path: Path) -> None:
    """One large object over HTTP, and some small ones over TLS."""
    place = Place(tmp_path, threads=3)
    for of, prefix in ((server, "big/model.onnx"), (tls_server, "few")):
        figures = measured(peer, of, of.job(prefix, place), place, is_checked=True)

        assert figures.seconds > 0
        assert figures.peak_mib > 0


def test_the_whole_adapter_pulls_every_byte(tmp_path: Path) -> None:
    place = Place(tmp_path)
    specs = ["saved/model.savedmodel/saved_model.pb=1KiB", "saved/model.savedmodel/variables/{}=3x1KiB"]
    with BenchServer(Network("near"), specs) as server:
        figures = measured(OVER_SPI, server, server.job("saved", place), place, is_checked=True)

    assert figures.seconds > 0


def test_wrong_bytes_are_seen(server: BenchServer, tmp_path: Path) -> None:
    place = Place(tmp_path)
    job = server.job("big/model.onnx", place)
    file = Path(job.folder) / "big_model.onnx"
    content = bytearray(server.items["big/model.onnx"].content())
    file.write_bytes(content)

    check("threads", server, job, Figures())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(WrongBytes, match="other bytes"):
        check("threads", server, job, Figures())
    file.write_bytes(content[:-1])
    with pytest.raises(WrongBytes, match="another length"):
        check("threads", server, job, Figures())
