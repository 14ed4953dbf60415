"""`stale`: what its owner has listed last, when storage is away; never when storage says no."""

from __future__ import annotations

import asyncio
import time

import pytest

from adapter.errors import SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.pull import remote
from adapter.waits import Waits
from tests.builders import a_spec

MODEL = {"m/config.pbtxt": b'backend: "onnxruntime"', "m/1/model.onnx": b"abc"}
AWAY = SourceUnavailable("bucket 'b' cannot be reached")
SECONDS = 0.5
"""Of a load: nothing that is away is tried for longer."""


def a_waits(seconds):
    return Waits(time.monotonic, time.monotonic() + seconds)


async def test_without_confirmation_nothing_is_given(cache):
    """Another storage key, another path, other parameters, another schema: all of that is another model or owner."""
    cache.put(MODEL)
    cache.bucket.put("other/model.onnx", b"abc")
    await cache.asked()
    cache.identity("other")
    others = [
        a_spec("m", storage_key="other"), a_spec("other"), a_spec("m", bucket="c"), a_spec("m", schema_path="s.json"),
        a_spec("m", storage_params={"access_key_id": "a", "secret_access_key": "b"}),
    ]  # fmt: skip
    for spec in others:
        cache.bucket.fail("list", AWAY, times=50)
        with pytest.raises(SourceUnavailable, match="cannot be reached"):
            await cache.load(spec, seconds=SECONDS)
        cache.bucket._faults["list"].clear()


@pytest.mark.parametrize("answer", [SourceDenied("403"), SourceNotFound("404")])
async def test_what_storage_has_said_last_holds_while_it_is_away(cache, answer):
    """Refused or deleted since it was confirmed: an outage gives nobody his rights, or the model, back. In the next process, too."""
    cache.put(MODEL)
    cache.identity("k")
    spec = a_spec("m", storage_key="k")
    await cache.asked()
    await cache.asked(spec)
    cache.bucket.fail("list", answer, times=2 if isinstance(answer, SourceDenied) else 1)  # of the path, and of the folder
    with pytest.raises(type(answer)):
        await cache.load(spec)
    cache.bucket.fail("list", AWAY, times=1000)
    for rig in (cache, cache.again()):
        with pytest.raises(SourceUnavailable, match="cannot be reached"):
            await rig.load(spec, seconds=SECONDS)
        assert (await rig.load(seconds=SECONDS)).key, "another storage key was not refused"
    cache.bucket._faults["list"].clear()
    await cache.asked(spec)
    cache.bucket.fail("list", AWAY, times=1000)
    assert (await cache.load(spec, seconds=SECONDS)).key


async def test_a_long_listing_is_no_silence(cache, monkeypatch):
    """A model of many pages: as long as storage answers it is not away, and what it has is given, not what it had."""
    monkeypatch.setattr(remote, "_STALE_SECONDS", 0.01)
    cache.put(MODEL)
    await cache.asked()
    cache.put(MODEL | {"m/1/model.onnx": b"changed"})
    looked = asyncio.Event()
    list_page = cache.bucket.list_page

    async def slow(*args, **kwargs):
        await asyncio.wait_for(looked.wait(), 20)
        return await list_page(*args, **kwargs)

    monkeypatch.setattr(cache.bucket, "list_page", slow)
    waits, looks = a_waits(60), []

    def silent():
        looks.append(1)
        if len(looks) == 3:
            looked.set()
        return 0.0

    monkeypatch.setattr(waits, "silent_seconds", silent)
    model = await cache.rig.store.open(a_spec("m"), waits)
    assert {file.path: file.size_bytes for file in model.listing.files}["1/model.onnx"] == len(b"changed")


async def test_another_type_of_the_same_path_needs_what_is_there(cache):
    """The layout of another type may want other files: then storage is away, and nothing else."""
    cache.put({"m/1/model.onnx": b"abc", "m/2/model.onnx": b"abc"})
    await cache.asked(a_spec("m", model_type="onnx"))
    cache.bucket.fail("list", AWAY, times=1000)
    model = await cache.rig.store.open(a_spec("m"), a_waits(SECONDS))
    assert (await model.fetch(tuple(file for file in model.listing.files if file.path.startswith("2/")))).key
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        await model.fetch(model.listing.files)
    with pytest.raises(SourceUnavailable, match="cannot be reached"):
        await model.read(model.listing.find("1/model.onnx"))
