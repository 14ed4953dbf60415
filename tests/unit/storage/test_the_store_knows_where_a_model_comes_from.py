"""The store as a whole: local or pulled, listings, reads, surveys, release, and preparing clients."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from adapter.errors import InvalidModel, InvalidRequest, SourceDenied, SourceNotFound
from adapter.model import Artifact
from adapter.storage.queues import EndpointQueues
from adapter.storage.search import READ_LIMIT_BYTES
from adapter.waits import Waits
from tests.builders import a_spec
from tests.unit.storage.beds import hang_after_pages_of, make_bed, opened, reached, write_tree


def local_spec(bed, path="helped/m", **fields):
    return a_spec(str(bed.root / path), **{"disk_size_bytes": 3} | fields)


def config_of(listing):
    """What a plan wants to see."""
    return [listing.find("config.pbtxt")]


async def test_what_is_wanted_is_read_in_the_turn_of_the_listing(bed, monkeypatch):
    """A small model queues at its endpoint once."""
    bed.bucket.put("m/config.pbtxt", b"platform: x")
    bed.bucket.put("m/1/model.onnx", b"abc")
    turns, original = [], EndpointQueues.turn
    monkeypatch.setattr(EndpointQueues, "turn", lambda *arguments: turns.append("one") or original(*arguments))
    model = await bed.store.open(a_spec("m"), Waits(time.monotonic), config_of)
    config = model.listing.find("config.pbtxt")
    assert turns == ["one"] and bed.bucket.calls == ["list m", "read m/config.pbtxt 0+11"]
    assert await model.read(config) == b"platform: x" and turns == ["one"]
    artifact = await model.fetch((model.listing.find("1/model.onnx"), config))
    assert bed.bucket.calls[2:] == ["read m/1/model.onnx 0+3"]
    assert (artifact.root / "config.pbtxt").read_bytes() == b"platform: x"


async def test_what_is_wanted_and_kept_is_not_read_from_the_store_again(bed):
    """Whoever may have an artifact has its files; a changed file is read anew."""
    bed.bucket.put("m/config.pbtxt", b"platform: x")
    bed.bucket.put("m/1/model.onnx", b"abc")
    first = await bed.store.open(a_spec("m"), Waits(time.monotonic), config_of)
    await first.fetch(first.listing.files)
    bed.bucket.calls.clear()
    second = await bed.store.open(a_spec("m"), Waits(time.monotonic), config_of)
    assert await second.read(second.listing.find("config.pbtxt")) == b"platform: x"
    assert bed.bucket.calls == ["list m"]
    bed.bucket.put("m/config.pbtxt", b"platform: y")
    third = await bed.store.open(a_spec("m"), Waits(time.monotonic), config_of)
    assert await third.read(third.listing.find("config.pbtxt")) == b"platform: y"


async def test_a_wanted_file_that_cannot_be_read_fails_as_a_read_does(bed):
    """Nothing is left of it, and the next one is asked from the beginning."""
    bed.bucket.put("m/config.pbtxt", b"platform: x")
    bed.bucket.fail("read", SourceDenied("no"))
    with pytest.raises(SourceDenied, match="no"):
        await bed.store.open(a_spec("m"), Waits(time.monotonic), config_of)
    model = await bed.store.open(a_spec("m"), Waits(time.monotonic), config_of)
    assert await model.read(model.listing.find("config.pbtxt")) == b"platform: x"
    bed.bucket.put("m/config.pbtxt", bytes(READ_LIMIT_BYTES + 1))
    with pytest.raises(InvalidModel, match="expected at most"):
        await bed.store.open(a_spec("m"), Waits(time.monotonic), config_of)
    assert bed.is_clean


async def test_a_load_that_is_cancelled_while_a_wanted_file_is_read_ends_the_read(bed):
    """The thread is free again, and nothing is left."""
    bed.bucket.put("m/config.pbtxt", b"platform: x")
    bed.bucket.hang("read")
    load = asyncio.create_task(bed.store.open(a_spec("m"), Waits(time.monotonic), config_of))
    await reached(bed.bucket.hanging)
    load.cancel()
    with pytest.raises(asyncio.CancelledError):
        await load
    assert bed.bucket.active == 0 and bed.is_clean


async def test_a_released_artifact_is_gone(bed):
    """With its directory."""
    bed.bucket.put("m/model", b"abc")
    model = await opened(bed.store, a_spec())
    artifact = await model.fetch(model.listing.files)
    await bed.store.release(artifact)
    assert bed.is_clean
    await bed.store.release(artifact)


async def test_foreign_files_are_not_released(bed):
    """They belong to the storage helper."""
    write_tree(bed.root, {"helped/m": b"abc"})
    await bed.store.release(Artifact(bed.root / "helped", is_ours=False))
    assert (bed.root / "helped/m").exists()


async def test_a_release_that_is_cancelled_still_deletes(bed):
    """The caller is gone, the files too."""
    bed.bucket.put("m/model", b"abc")
    model = await opened(bed.store, a_spec())
    artifact = await model.fetch(model.listing.files)
    task = asyncio.create_task(bed.store.release(artifact))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert bed.is_clean


async def test_empty_and_large_files_are_read_with_care(bed):
    """Nothing is asked for an empty one; a config of megabytes is refused unread."""
    bed.bucket.put("m/config.pbtxt", b"")
    bed.bucket.put("m/large", bytes(READ_LIMIT_BYTES + 1))
    model = await opened(bed.store, a_spec())
    assert await model.read(model.listing.find("config.pbtxt")) == b""
    with pytest.raises(InvalidModel, match=f"'large' of memory://b/m has {READ_LIMIT_BYTES + 1} bytes"):
        await model.read(model.listing.find("large"))
    assert bed.bucket.calls == ["list m"]


# embedded setting, spec fields, is local
CHOICES = [
    (None, {}, True),
    (None, {"disk_size_bytes": None}, False),
    (None, {"storage_params": {"bucket": "b"}}, False),
    (None, {"path": "/helped/m"}, False),
    (None, {"path": "helped/m"}, False),
    (None, {"path": "{root}/absent"}, False),
    (None, {"storage_key": "default"}, True),
    (True, {}, False),
    (False, {}, True),
    (False, {"disk_size_bytes": None, "storage_params": {"bucket": "b"}}, True),
]


@pytest.mark.parametrize(("embedded", "fields", "is_local"), CHOICES)
@pytest.mark.parametrize("call", ["open", "survey"])
async def test_local_or_pulled(tmp_path, volume, embedded, fields, is_local, call):
    """Auto looks at the request and the volume; true and false force one."""
    bed = make_bed(tmp_path, volume, embedded=embedded)
    write_tree(bed.root, {"helped/m/file": b"abc"})
    fields = dict(fields)
    path = fields.pop("path", "{root}/helped/m").format(root=bed.root)
    bed.bucket.put(f"{path.strip('/')}/other", b"12345")
    spec = a_spec(path, **{"disk_size_bytes": 3} | fields)
    listing = (await opened(bed.store, spec)).listing if call == "open" else (await bed.store.survey(spec, 20)).listing
    assert [file.path for file in listing.files] == (["file"] if is_local else ["other"])
    assert bool(bed.bucket.calls) is not is_local
    bed.store.close()


async def test_forced_local_refuses_what_is_not_on_the_volume(tmp_path, volume):
    """With the storage helper, no path leads elsewhere."""
    bed = make_bed(tmp_path, volume, embedded=False)
    with pytest.raises(InvalidRequest, match="is not an absolute path below"):
        await opened(bed.store, a_spec("m"))
    with pytest.raises(SourceNotFound, match="does not exist"):
        await opened(bed.store, local_spec(bed))
    bed.store.close()


async def test_a_survey_that_runs_out_of_time_tells_what_it_saw(bed):
    """A lower bound, and no thread left hanging."""
    for number in range(10):
        bed.bucket.put(f"m/{number}", bytes(100))
    hang_after_pages_of(bed.bucket, 5)
    survey = asyncio.create_task(bed.store.survey(a_spec(), 0.2))
    await reached(bed.bucket.hanging)
    assert (await survey).listing is None
    assert (await survey).seen_bytes == 500
    while bed.bucket.active:
        await asyncio.sleep(0)


async def test_a_survey_without_a_free_lane_is_empty_in_time(bed):
    """Two surveys that hang hold the lanes to the endpoint; the third caller waits no longer than it may."""
    bed.bucket.put("m/model", b"abc")
    bed.bucket.hang("list", times=2)
    hanging = [asyncio.create_task(bed.store.survey(a_spec(), 20)) for _ in range(2)]
    while bed.bucket.active < 2:
        await asyncio.sleep(0)
    third = await bed.store.survey(a_spec(), 0.05)
    assert (third.seen_bytes, third.listing) == (0, None)
    for survey in hanging:
        survey.cancel()
    assert (await bed.store.survey(a_spec(), 20)).listing is not None, "a thread has ended"


async def test_surveys_do_not_use_the_threads_of_loads(bed):
    """Hanging listings of loads leave surveys alone."""
    bed.bucket.put("m/model", b"abc")
    bed.bucket.hang("list", times=30)
    loads = [asyncio.create_task(opened(bed.store, a_spec())) for _ in range(30)]
    while bed.bucket.active < 16:
        await asyncio.sleep(0)
    bed.bucket._faults["list"].clear()
    assert (await bed.store.survey(a_spec(), 20)).seen_bytes == 3
    for load in loads:
        load.cancel()
    await asyncio.gather(*loads, return_exceptions=True)
    assert bed.bucket.active == 0


@pytest.mark.parametrize("problem", ["path", "absent", "config"])
async def test_a_survey_tells_errors_as_open_does(bed, problem):
    """When the store answered in time."""
    if problem == "config":
        bed.configure("default", {"bucket": "b"})
    spec = a_spec(".." if problem == "path" else "m")
    with pytest.raises(SourceNotFound if problem == "absent" else InvalidRequest) as told:
        await opened(bed.store, spec)
    with pytest.raises(type(told.value)) as surveyed:
        await bed.store.survey(spec, 20)
    assert surveyed.value.text == told.value.text


async def test_a_survey_of_a_local_model(bed):
    """Its own count, whatever the request says."""
    write_tree(bed.root, {"helped/m/file": b"12345"})
    survey = await bed.store.survey(local_spec(bed), 20)
    assert survey.seen_bytes == 5 and survey.listing.size_bytes == 5


async def test_prepare_makes_the_clients_of_all_keys(bed):
    """Before the first load asks for them."""
    bed.configure("one", {"type": "s3"})
    bed.configure("two", {"type": "s3"})
    await bed.store.prepare()
    assert bed.clients.warmed == ["storage config 'default'", "storage config 'one'", "storage config 'two'"]


async def test_prepare_only_warns(bed, capsys):
    """A broken entry is some user's trouble, not the start's."""
    bed.configure("broken", "the-secret{")
    await bed.store.prepare()
    bed.clients.error = InvalidRequest("cannot work")
    await bed.store.prepare()
    printed = capsys.readouterr().out
    assert "storage.config_unusable" in printed and "is not JSON" in printed and "cannot work" in printed
    assert "the-secret" not in printed


@pytest.mark.parametrize("kind", ["ftp", "hf", "S3"])
@pytest.mark.parametrize("call", ["open", "survey"])
async def test_other_types_are_not_supported(bed, kind, call):
    """The sentence says which are."""
    bed.configure("default", {"type": kind})
    with pytest.raises(InvalidRequest, match=f"^storage type '{kind}' is not supported; supported: s3, http, gcs, azure, pvc$"):
        await (opened(bed.store, a_spec()) if call == "open" else bed.store.survey(a_spec(), 20))


async def test_a_model_volume_that_hangs_does_not_keep_the_artifacts_of_others(bed, monkeypatch):
    """The storage helper links to claims, and the network volume behind a claim can hang like any store."""
    write_tree(bed.root / "helped", {"model": b"abc"})
    bed.bucket.put("m/model", b"abc")
    model = await opened(bed.store, a_spec())
    artifact = await model.fetch(model.listing.files)
    release, scandir = threading.Event(), os.scandir
    hanging = []

    def scan(path):
        if path == bed.root / "helped":
            hanging.append(path)
            release.wait(20)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", scan)
    loads = [asyncio.create_task(opened(bed.store, local_spec(bed, "helped"))) for _ in range(5)]
    try:
        while len(hanging) < 4:
            await asyncio.sleep(0.001)
        async with asyncio.timeout(5):
            await bed.store.release(artifact)
    finally:
        release.set()
    assert [(await load).listing.size_bytes for load in loads] == [3] * 5


@pytest.mark.parametrize("call", ["open", "survey"])
async def test_a_path_that_no_file_can_have_is_refused(bed, call):
    """Before anything is looked for: a NUL byte ends a path for the kernel alone."""
    spec = a_spec(str(bed.root / "a\0b"), disk_size_bytes=1)
    with pytest.raises(InvalidRequest, match="NUL byte"):
        await (opened(bed.store, spec) if call == "open" else bed.store.survey(spec, 20))
