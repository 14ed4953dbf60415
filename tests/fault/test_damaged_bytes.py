"""Bytes that are damaged on their way from a store that tells checksums: the load fails in words, and nothing of it is left."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.benchmark.ours import storage_config
from tests.benchmark.server.stock import Stock, items_of
from tests.benchmark.server.tongues import Tongues
from tests.benchmark.server.wire import Manners, Server
from tests.fault.conftest import System

LARGE, SMALL = "m/1/weights.bin", "m/1/model.py"
LARGE_BYTES = 19 * 1024 * 1024 + 11
SPECS = (f"{LARGE}={LARGE_BYTES}", f"{SMALL}=30000")
TOLD = {"s3": ("crc32", "crc32c", "crc64nvme", "sha256"), "gcs": ("crc32c", "md5"), "azure": ("md5",)}
IN_PARTS = ("crc32", "crc32c", "crc64nvme")
CASES = [
    (store, algorithm, key)
    for store, algorithms in TOLD.items()
    for algorithm in algorithms
    for key in ((SMALL, LARGE) if algorithm in IN_PARTS else (SMALL,))
]


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[Server]:
    """Tells checksums of the algorithm that a test is for."""
    algorithm: str = getattr(request, "param", "")
    if algorithm == "crc64nvme":
        pytest.importorskip("anycrc", reason="the compiled code that verifies CRC64NVME is not installed")
    made = Server(0, Tongues(Stock(item for spec in SPECS for item in items_of(spec)), algorithm), Manners(), 1)
    made.serve_in_thread()
    yield made
    made.close()


def configure(folder: Path, store: str, server: Server) -> dict[str, Any]:
    """The mounted secret has a key for this store; what a load's parameters are then."""
    (folder / "damaged").write_text(json.dumps(storage_config(server.url, store)))
    return {"storage_key": "damaged"}


@pytest.mark.parametrize(("store", "server", "key"), CASES, indirect=["server"], ids=[" ".join(case) for case in CASES])
async def test_one_bit_is_enough(system: System, config: Path, server: Server, store: str, key: str) -> None:
    """In the middle of a file of one GET or of many; the next load, which gets what was stored, succeeds."""
    params = configure(config, store, server)
    server.spoiled[key] = 12_345 if key == SMALL else LARGE_BYTES - 1_000_000

    failure = await system.failure("m", "m", **params)

    assert failure.code() is grpc.StatusCode.UNAVAILABLE
    words = failure.details() or ""
    assert f"the bytes of '{key}' from " in words and f"are not those that were stored: their {server.checksums.upper()} is " in words
    assert "\n" not in words
    assert system.leftovers() == []

    server.spoiled.clear()
    await system.load("m", "m", **params)
    assert system.triton.in_memory
    await system.unload("m")
    assert system.leftovers() == []


@pytest.mark.parametrize("server", ["crc32", ""], indirect=True, ids=["told", "not told"])
async def test_a_checksum_costs_one_request_where_the_listing_promises_one(system: System, config: Path, server: Server) -> None:
    """For the large file alone: the answer with a small one tells it. A store that promises nothing is asked nothing."""
    await system.load("m", "m", **configure(config, "s3", server))

    counts = server.counts()
    assert counts["head"] == (1 if server.checksums else 0)
    assert counts["list"] == 1
    await system.unload("m")


@pytest.mark.parametrize("store", ["s3", "gcs", "azure"])
async def test_what_no_store_tells_is_not_verified(system: System, config: Path, server: Server, store: str) -> None:
    """Else the tests above would prove nothing: the same damage, and no checksum."""
    params = configure(config, store, server)
    server.spoiled[SMALL] = 12_345

    await system.load("m", "m", **params)
    await system.unload("m")
