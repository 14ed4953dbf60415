"""A survey reads the small files that a prediction asks for, and what it has learned until its time is up is told."""

from __future__ import annotations

import asyncio

import pytest

from adapter.errors import InvalidModel, SourceUnavailable
from adapter.storage.search import READ_LIMIT_BYTES
from tests.builders import a_spec
from tests.unit.storage.rigs import reached, write_tree

CONFIG = b'backend: "python"\n'
IN_A_CLAIM = a_spec(storage_params={"type": "pvc", "name": "c"})


def configs(listing):
    return tuple(file for file in listing.files if file.path == "config.pbtxt")


def texts(survey):
    return {file.path: content for file, content in survey.contents.items()}


@pytest.mark.parametrize("where", ["a bucket", "a claim", "the model volume"])
async def test_what_is_wanted_is_read(rig, tmp_path, where):
    """With the threads of surveys, wherever the model lies."""
    files = {"m/config.pbtxt": CONFIG, "m/1/model.py": b"abc"}
    for path, content in files.items():
        rig.bucket.put(path, content)
    write_tree(tmp_path / "claims/c", files)
    write_tree(rig.root, files)
    spec = {"a bucket": a_spec(), "a claim": IN_A_CLAIM, "the model volume": a_spec(str(rig.root / "m"), disk_size_bytes=3)}[where]

    survey = await rig.store.survey(spec, 20, configs)

    assert texts(survey) == {"config.pbtxt": CONFIG}
    assert survey.seen_bytes == 3 + len(CONFIG)
    assert texts(await rig.store.survey(spec, 20)) == {}


async def test_a_file_that_cannot_be_read_costs_the_listing_nothing(rig):
    """Nor one that is too large."""
    rig.bucket.put("m/config.pbtxt", CONFIG)
    rig.bucket.put("m/1/model.py", b"abc")
    rig.bucket.fail("read", SourceUnavailable("away", can_pass=False))
    survey = await rig.store.survey(a_spec(), 20, configs)
    assert (survey.listing.size_bytes, texts(survey)) == (3 + len(CONFIG), {})

    rig.bucket.put("m/config.pbtxt", bytes(READ_LIMIT_BYTES + 1))
    survey = await rig.store.survey(a_spec(), 20, configs)
    assert (len(survey.listing.files), texts(survey)) == (2, {})


async def test_a_file_that_is_not_read_in_time_costs_the_listing_nothing(rig):
    """The time is over all of it."""
    rig.bucket.put("m/config.pbtxt", CONFIG)
    rig.bucket.put("m/1/model.py", b"abc")
    rig.bucket.hang("read")
    survey = asyncio.create_task(rig.store.survey(a_spec(), 0.3, configs))
    await reached(rig.bucket.hanging)

    assert (len((await survey).listing.files), texts(await survey)) == (2, {})
    while rig.bucket.active:
        await asyncio.sleep(0)


async def test_who_wants_the_impossible_is_told_so(rig):
    """As by a plan: configs of a bundle that are too long together."""
    rig.bucket.put("m/model", b"abc")

    def refuse(_listing):
        raise InvalidModel("too long")

    with pytest.raises(InvalidModel, match="too long"):
        await rig.store.survey(a_spec(), 20, refuse)
