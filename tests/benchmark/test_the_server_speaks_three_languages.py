"""What is compared pulls every byte from the benchmark's server, near and over TLS; wrong bytes are seen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.benchmark.gauge import Figures
from tests.benchmark.over_spi import OVER_SPI
from tests.benchmark.rig import OF_THEIR_VENV, OURS, PEERS, BenchServer, Client, Network, WrongBytes, check, measured

BIG = "big/model.onnx"
SPECS = [f"{BIG}=3MiB", "saved/model.savedmodel/saved_model.pb=1KiB", "saved/model.savedmodel/variables/{}=3x1KiB"]


@pytest.fixture(scope="module", params=["http", pytest.param("https", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest) -> Iterator[BenchServer]:
    with BenchServer(Network("near", is_tls=request.param == "https"), SPECS) as made:
        yield made


@pytest.mark.parametrize("store", ["s3", *(pytest.param(name, marks=pytest.mark.long) for name in ("gcs", "azure"))])
def test_the_adapter_pulls_a_large_object(server: BenchServer, store: str, tmp_path: Path) -> None:
    measured(OURS, server, server.job(BIG, tmp_path, store=store), is_checked=True)
    assert not list(tmp_path.iterdir())


@pytest.mark.long
@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.name not in OF_THEIR_VENV], ids=lambda peer: peer.name)
def test_alternatives_pull_every_byte(server: BenchServer, peer: Client, tmp_path: Path) -> None:
    figures = measured(peer, server, server.job(BIG, tmp_path), is_checked=True)
    assert figures.seconds > 0
    assert figures.peak_mib > 0


def test_the_whole_adapter_pulls_every_byte(server: BenchServer, tmp_path: Path) -> None:
    assert measured(OVER_SPI, server, server.job("saved", tmp_path), is_checked=True).seconds > 0


def test_wrong_bytes_are_seen(server: BenchServer, tmp_path: Path) -> None:
    job = server.job(BIG, tmp_path)
    file = Path(job.folder) / "big_model.onnx"
    content = server.items[BIG].content()
    file.write_bytes(content)
    check("threads", server, job, Figures())
    for wrong, words in ((content[:-1] + bytes([content[-1] ^ 1]), "other bytes"), (content[:-1], "another length")):
        file.write_bytes(wrong)
        with pytest.raises(WrongBytes, match=words):
            check("threads", server, job, Figures())
