"""Models with `unpack: "true"`: pulled, unpacked, served as the files in them; nothing is left of those that nobody fetched."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest
from tests.builders import a_spec, tar_of
from tests.unit.storage.rigs import opened

TREE = {"config.pbtxt": b"platform: x", "1/model.onnx": b"abc"}


def spec(path="m.tar.gz", **params):
    return a_spec(path, storage_params={"unpack": "true"} | params)


async def test_without_the_key_an_archive_is_a_file(rig):
    """Nobody asked; so is what is not named as one, and a folder."""
    rig.bucket.put("m.tar.gz", tar_of([("a", b"x")]))
    rig.bucket.put("model.onnx", b"abc")
    rig.bucket.put("f.zip/x", b"abc")
    for wanted, path in ((a_spec("m.tar.gz"), "m.tar.gz"), (spec("model.onnx"), "model.onnx"), (spec("f.zip"), "x")):
        assert [file.path for file in (await opened(rig.store, wanted)).listing.files] == [path]
    with pytest.raises(InvalidRequest, match="unpack is not a boolean"):
        await opened(rig.store, spec(unpack="maybe"))


async def test_what_was_opened_does_not_give_way(kept):
    """It is held until it is fetched, whatever becomes of the archive."""
    kept.bucket.put("m.tar.gz", tar_of([("a", b"one")]))
    first = await opened(kept.store, spec())
    await kept.store.release(await first.fetch(first.listing.files))
    again = await opened(kept.store, spec())
    kept.bucket.put("m.tar.gz", tar_of([("a", b"two")]))
    assert kept.space.give_way(1) == 0
    artifact = await again.fetch(again.listing.files)
    assert (artifact.root / "a").read_bytes() == b"one"


async def test_a_survey_does_not_pull(rig):
    """Until it was unpacked once, the archive's own size is a lower bound."""
    content = tar_of(list(TREE.items()))
    rig.bucket.put("m.tar.gz", content)
    survey = await rig.store.survey(spec(), 20)
    assert (survey.seen_bytes, survey.listing) == (len(content), None)
    model = await opened(rig.store, spec())
    assert (await rig.store.survey(spec(), 20)).listing == model.listing
