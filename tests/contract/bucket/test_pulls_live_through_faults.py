"""Whole pulls from a real S3 server behind a proxy that spoils answers: the right bytes, or nothing left."""

from __future__ import annotations

import math
import os

import pytest

from adapter.errors import SourceChanged, SourceUnavailable
from tests.builders import a_spec
from tests.contract.bucket.model_rigs import ModelRig, make_store
from tests.fakes.s3_proxy import Fault
from tests.unit.storage.rigs import opened

MIB = 1024 * 1024
CONTENT = os.urandom(5 * MIB + 17)
WHOLE = {"large": CONTENT, "small": b"abc", "empty": b""}


@pytest.fixture
def rig(tmp_path, volume, s3_server, proxy, bucket):
    """A store whose storage config leads through the proxy; the bucket holds `m` of six parts and two small files."""
    s3_server.put_folder(bucket, "m", WHOLE)
    config = s3_server.storage_config(bucket) | {"endpoint_url": proxy.endpoint_url}
    made = ModelRig(None, make_store(tmp_path, volume, config), volume)
    yield made
    made.store.close()


async def pull(rig, *, seconds=math.inf, **fields):
    model = await opened(rig.store, a_spec(storage_key="k", **fields), seconds)
    return await model.fetch(model.listing.files)


def contents(artifact):
    return {path.name: path.read_bytes() for path in artifact.root.iterdir()}


PASSING = [
    ("nothing", Fault(), "", 1),
    ("500 at the listing", Fault(status=500), "list-type", 2),
    ("500 at reads", Fault(status=500), "/m/", 4),
    ("SlowDown", Fault(status=503, code="SlowDown"), "/m/", 4),
    ("429", Fault(status=429, code="TooManyRequests"), "/m/", 2),
    ("reset before headers", Fault(reset_after_bytes=-1), "/m/large", 3),
    ("reset in a body", Fault(reset_after_bytes=300_000), "/m/large", 6),
    ("truncated body", Fault(cut_after_bytes=300_000), "/m/large", 6),
    ("chunks that end early", Fault(cut_after_bytes=300_000, is_chunked=True), "/m/large", 6),
    ("truncated to nothing", Fault(cut_after_bytes=0), "/m/large", 4),
    ("half a listing", Fault(cut_after_bytes=200), "list-type", 2),
    ("reset at the listing", Fault(reset_after_bytes=-1), "list-type", 2),
]


@pytest.mark.parametrize(("name", "fault", "having", "times"), PASSING, ids=[row[0] for row in PASSING])
async def test_what_passes_is_not_noticed(rig, proxy, name, fault, having, times):
    """The artifact is whole."""
    proxy.next(fault, times=times, having=having)
    assert contents(await pull(rig)) == WHOLE


async def test_a_truncated_body_is_resumed_not_repeated(rig, proxy):
    """The bytes that came are not asked for again."""
    proxy.next(Fault(cut_after_bytes=300_000), having="/m/large")
    assert contents(await pull(rig)) == WHOLE
    assert len([line for line in proxy.requests if "/m/large" in line]) == 7


async def test_a_store_that_says_slow_down_is_not_hammered(rig, proxy):
    """Four threads meet it at once; then one of them tries, for all."""
    model = await opened(rig.store, a_spec(storage_key="k"), 6)
    before = len(proxy.requests)
    proxy.next(Fault(status=503, code="SlowDown"), times=500)
    with pytest.raises(SourceUnavailable, match=r"SlowDown, HTTP 503\)?; tried \d+ times in \d+\.\d s$"):
        await model.fetch(model.listing.files)
    assert len(proxy.requests) - before <= 4 + 8
    assert rig.is_clean


async def test_a_store_that_comes_back_is_asked_by_all_at_once(rig, proxy):
    """One try tells it to the others."""
    proxy.next(Fault(status=503, code="SlowDown"), times=5, having="/m/")
    assert contents(await pull(rig, seconds=60)) == WHOLE


@pytest.mark.parametrize("new", [os.urandom(len(CONTENT)), b"short", CONTENT + b"longer"])
async def test_an_object_replaced_during_its_pull_is_never_a_mixture(rig, proxy, s3_server, bucket, new):
    """Between two of its parts; the next pull gets the new one."""
    replace = Fault(first=lambda: s3_server.put(bucket, "m/large", new))
    for _ in range(3):
        proxy.next(Fault(), having="/m/large")
    proxy.next(replace, having="/m/large")
    with pytest.raises(SourceChanged, match="'m/large' was replaced after the listing"):
        await pull(rig)
    assert rig.is_clean
    assert contents(await pull(rig)) == WHOLE | {"large": new}


async def test_1200_objects_some_empty_beside_a_sibling(rig, s3_server, bucket):
    """All pages, every file, nothing of the neighbour."""
    for number in range(1200):
        s3_server.put(bucket, f"many/d{number % 25}/f{number}", b"" if number % 100 == 0 else b"%d" % number)
    s3_server.put(bucket, "many-2/x", b"sibling")
    artifact = await pull(rig, path="/many/")
    found = {path.name: path.read_bytes() for path in artifact.root.rglob("*") if path.is_file()}
    assert found == {f"f{number}": b"" if number % 100 == 0 else b"%d" % number for number in range(1200)}
