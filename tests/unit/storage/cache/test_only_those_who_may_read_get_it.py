"""Listing with the request's own credentials comes first, and leave to list is no leave to read."""

from __future__ import annotations

from functools import partial

import pytest

from adapter.errors import SourceDenied
from tests.builders import a_spec, zip_of

FILE = {"m/model.onnx": b"abc" * 100}


@pytest.fixture
def kept_archive(cache):
    """An archive that somebody has unpacked."""
    cache.bucket.put("m.zip", zip_of([("1/model.onnx", b"abc"), ("1/more", b"x")]))
    spec = partial(a_spec, "m.zip", model_type="onnx", storage_params={"unpack": "true"})
    return cache, spec, spec(storage_key="nosy")


async def test_who_may_list_and_not_read_gets_no_changed_model(cache):
    """No part of the new version comes from the old one."""
    cache.put({"m/1/model.onnx": b"abc", "m/1/weights.bin": b"abc"})
    spec = a_spec("m", model_type="onnx")
    await cache.asked(spec)
    cache.bucket.remove("m/1/weights.bin")
    cache.identity("nosy", may_read=False)
    with pytest.raises(SourceDenied, match="403 for the object"):
        await cache.load(a_spec("m", model_type="onnx", storage_key="nosy"))
    assert len(cache.artifacts) == 1
    assert await cache.asked(spec) == ["list m"], "who may have the old one"


async def test_after_a_refusal_the_owner_shows_that_it_may_read(cache):
    """One byte, then no more, also in the next process."""
    cache.put(FILE)
    rights = cache.identity("k")
    spec = a_spec("m", storage_key="k")
    await cache.asked(spec)
    rights.may_list = False
    with pytest.raises(SourceDenied, match="403 for the listing"):
        await cache.load(spec)
    rights.may_list, rights.may_read = True, False
    for rig in (cache, cache.again()):
        with pytest.raises(SourceDenied, match="403 for the object"):
            await rig.load(spec)
    rights.may_read = True
    assert await cache.asked(spec) == ["list m", "read m/model.onnx 0+1"]
    assert await cache.asked(spec) == ["list m"]
    assert await cache.again().asked(spec) == ["list m"]


async def test_a_known_archive_is_told_to_its_owner_alone(kept_archive):
    """Its names and sizes are content."""
    cache, spec, nosy = kept_archive
    await cache.asked(spec())
    cache.identity("nosy", may_read=False)
    with pytest.raises(SourceDenied, match="403 for the object"):
        await cache.load(nosy)
    assert (await cache.rig.store.survey(nosy, 20)).listing is None
    assert (await cache.rig.store.survey(spec(), 20)).listing is not None
