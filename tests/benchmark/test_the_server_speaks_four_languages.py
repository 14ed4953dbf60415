"""The benchmark's server: ranges, conditions, pages, and how far away it seems to be."""

from __future__ import annotations

import base64
import http.client
import time
import zlib
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.benchmark.bed import OF_THEIR_VENV, OURS, PEERS, BenchServer, Client, Network, Place, WrongBytes, check, measured
from tests.benchmark.gauge import Figures
from tests.benchmark.over_spi import OVER_SPI
from tests.benchmark.server.shelf import BLOCK_BYTES, Item, Shelf, items_of, size_of
from tests.benchmark.server.tongues import Tongues, asked
from tests.real.polls import until
from tests.real.ports import is_listening

SPECS = ["big/model.onnx=3MiB", "few/{}=30x1KiB", "with space/a&b=10"]


@pytest.fixture(scope="module", params=[False, True], ids=["http", "https"])
def server(request: pytest.FixtureRequest) -> Iterator[BenchServer]:
    with BenchServer(Network("near", is_tls=request.param), SPECS) as made:
        yield made


@pytest.fixture
def tongues() -> Tongues:
    return Tongues(Shelf(item for spec in SPECS for item in items_of(spec)), "crc32")


@pytest.mark.parametrize("store", ["s3", "gcs", "azure", "http"])
def test_the_adapter_pulls_a_large_object(server: BenchServer, store: str, tmp_path: Path) -> None:
    place = Place(tmp_path)

    figures = measured(OURS, server, server.job("big/model.onnx", place, store=store), place, is_checked=True)

    assert figures.counts["bytes"] >= server.items["big/model.onnx"].size_bytes
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("store", "files"), [("s3", 1010), ("gcs", 1010), ("azure", 260)])
def test_the_adapter_pulls_more_than_a_page(store: str, files: int, tmp_path: Path) -> None:
    place = Place(tmp_path)
    with BenchServer(Network("near"), [f"many/{{}}={files}x1KiB"]) as server:
        figures = measured(OURS, server, server.job("many", place, store=store), place, is_checked=True)

    assert figures.counts["get"] >= files
    assert figures.counts["list"] >= 2


@pytest.mark.parametrize("peer", [peer for peer in PEERS if peer.name not in OF_THEIR_VENV], ids=lambda peer: peer.name)
@pytest.mark.parametrize("prefix", ["big/model.onnx", "few"])
def test_alternatives_pull_every_byte(server: BenchServer, peer: Client, prefix: str, tmp_path: Path) -> None:
    place = Place(tmp_path, threads=3)

    figures = measured(peer, server, server.job(prefix, place), place, is_checked=True)

    assert figures.seconds > 0
    assert figures.peak_mib > 0


@pytest.mark.parametrize("prefix", ["big/model.onnx", "saved"])
def test_the_whole_adapter_pulls_every_byte(prefix: str, tmp_path: Path) -> None:
    place = Place(tmp_path)
    specs = ["big/model.onnx=3MiB", "saved/model.savedmodel/saved_model.pb=1KiB", "saved/model.savedmodel/variables/{}=3x1KiB"]
    with BenchServer(Network("near"), specs) as server:
        figures = measured(OVER_SPI, server, server.job(prefix, place), place, is_checked=True)

    assert figures.cpu_seconds > 0


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


@pytest.mark.parametrize("path", ["/models/big/model.onnx", "/files/big/model.onnx", "/account/c/big/model.onnx"])
@pytest.mark.parametrize(
    ("wanted", "first", "last"), [("0-0", 0, 0), ("5-4100", 5, 4100), ("3145720-9999999", 3145720, 3145727), ("-7", 3145721, 3145727)]
)
def test_a_range_is_that_range(tongues: Tongues, path: str, wanted: str, first: int, last: int) -> None:
    answer = tongues.answer(asked(path, "GET", {"range": f"bytes={wanted}"}))

    assert (answer.status, answer.start, answer.length) == (206, first, last - first + 1)
    assert answer.headers["Content-Range"] == f"bytes {first}-{last}/3145728"


@pytest.mark.parametrize(("range_", "status"), [("bytes=3145728-", 416), ("bytes=x", 416), ("bytes=7-3", 416)])
def test_a_range_of_nothing(tongues: Tongues, range_: str, status: int) -> None:
    assert tongues.answer(asked("/files/big/model.onnx", "GET", {"range": range_})).status == status


def test_conditions_hold_to_a_version(tongues: Tongues) -> None:
    etag = tongues.answer(asked("/models/big/model.onnx", "HEAD", {})).headers["ETag"]

    def status(headers: dict[str, str], target: str = "/files/big/model.onnx") -> int:
        return tongues.answer(asked(target, "GET", headers)).status

    assert status({"if-match": etag}) == 200
    assert status({"if-match": '"other"'}) == 412
    assert status({"range": "bytes=0-1", "if-range": '"other"'}) == 200
    assert status({}, "/download/storage/v1/b/models/o/big%2Fmodel.onnx?alt=media&generation=1") == 404


def test_whole_pages_have_all_rows_however_few_are_asked_for() -> None:
    shelf = Shelf(items_of("few/{}=30x1KiB"))
    pages = [
        Tongues(shelf, are_pages_whole=is_whole).answer(asked("/models?list-type=2&prefix=few/&max-keys=10", "GET", {})).text
        for is_whole in (False, True)
    ]

    assert [page.count(b"<Key>") for page in pages] == [10, 30]


def test_a_checksum_is_of_the_whole_object(tongues: Tongues) -> None:
    item = Item("big/model.onnx", 3 * 1024**2)

    answer = tongues.answer(asked("/models/big/model.onnx", "HEAD", {"x-amz-checksum-mode": "ENABLED"}))

    assert item.checksum("crc32") == zlib.crc32(item.content()).to_bytes(4, "big")
    assert answer.headers["x-amz-checksum-crc32"] == base64.b64encode(item.checksum("crc32")).decode()
    assert "x-amz-checksum-crc32" not in tongues.answer(asked("/models/big/model.onnx", "HEAD", {})).headers


def test_pages_hold_each_key_once() -> None:
    shelf = Shelf(items_of("a/{}=10x1") + items_of("b/x/{}=3x1") + items_of("b/y=1"))
    found, after = [], ""
    while True:
        page = shelf.page("", "", after, 4)
        found += [item.key for item in page.items]
        if page.next_after is None:
            break
        after = page.next_after
    assert found == list(shelf.items)
    assert all(one < two for one, two in pairwise(found))

    folders, after = [], ""
    while True:
        page = shelf.page("b/", "/", after, 1)
        folders += [*page.folders, *(item.key for item in page.items)]
        if page.next_after is None:
            break
        after = page.next_after
    assert folders == ["b/x/", "b/y"]


def test_content_goes_on_over_the_end_of_the_block() -> None:
    item = Item("k", BLOCK_BYTES + 10)

    assert item.content(BLOCK_BYTES - 5, 10) == item.content(BLOCK_BYTES - 5, 5) + item.content(0, 5)
    assert item.content(0, 100) != Item("l", BLOCK_BYTES + 10).content(0, 100)


@pytest.mark.parametrize(("text", "size"), [("10", 10), ("64KiB", 65536), ("1.5MiB", 1572864), ("2GiB", 2 * 1024**3)])
def test_sizes_are_read_in_words(text: str, size: int) -> None:
    assert size_of(text) == size


@pytest.mark.parametrize("text", ["", "KiB", "7x", "x"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        size_of(text)


def test_latency_and_the_cap_of_a_connection(tmp_path: Path) -> None:
    """At least as far away as was said; how much further depends on the machine."""
    latency, mb, size = 0.05, 20, 8_000_000
    with BenchServer(Network("far", latency * 1000, mb), [f"o={size}"]) as server:
        connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=20)
        for _ in range(2):
            began = time.perf_counter()
            connection.request("GET", "/files/o")
            answer = connection.getresponse()
            first = time.perf_counter() - began
            content = answer.read()
            whole = time.perf_counter() - began
            assert first >= latency
            assert whole - first >= 0.7 * size / (mb * 1_000_000)
        connection.close()
        assert content == server.items["o"].content()


def test_all_processes_count_together_and_end_with_the_first() -> None:
    with BenchServer(Network("near"), ["o=10"]) as server:
        netloc = urlsplit(server.url).netloc
        for _ in range(20):
            connection = http.client.HTTPConnection(netloc, timeout=20)
            connection.request("GET", "/files/o")
            connection.getresponse().read()
            connection.request("HEAD", "/files/o")
            connection.getresponse().read()
            connection.close()
        counts = server.counts()
        assert server.counts() == counts, "whoever counts is not counted"
    assert (counts["connections"], counts["get"], counts["head"], counts["bytes"]) == (20, 20, 20, 200)
    until(lambda: not is_listening(int(netloc.rpartition(":")[2])), "all processes have ended", 20)
