"""Hostile archives through the whole store: refused as a model, nothing of them is left, and the next load works."""

from __future__ import annotations

import asyncio
import gzip
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapter.errors import InvalidModel, InvalidRequest
from adapter.volume.volume import Volume
from tests.builders import a_spec
from tests.security.archive_forge import LINK_MODE, Tarred, Zipped, forged_tar, forged_zip, long_name, pax
from tests.unit.storage.rigs import StoreRig, make_rig, opened

OK = Tarred(b"ok", b"content")
DEEP = b"d/" * 1200 + b"f"


@pytest.fixture
def rig(tmp_path: Path, volume: Volume) -> Iterator[StoreRig]:
    made = make_rig(tmp_path, volume)
    yield made
    made.store.close()


def spec(path: str):
    return a_spec(path, storage_params={"unpack": "true"})


async def is_settled(rig: StoreRig) -> bool:
    """Once deletions in threads are through."""
    volume = rig.volume
    for _ in range(5000):
        if not any(os.listdir(folder) for folder in (volume.staging_dir, volume.artifacts_dir, volume.trash_dir)):
            return True
        await asyncio.sleep(0.001)
    return False


HOSTILE = {
    "deep.tgz": gzip.compress(forged_tar([OK, pax((b"path", DEEP)), Tarred(b"a", b"x")])),
    "lzma.zip": forged_zip([Zipped(b"ok", b"x"), Zipped(b"a", b"damaged", method=14)]),
    "out.zip": forged_zip([Zipped(b"ok", b"x"), Zipped(b"l", b"../../../etc/passwd", mode=LINK_MODE)]),
    "cut.tgz": gzip.compress(forged_tar([OK, Tarred(b"a", os.urandom(100_000))]))[:-20],
}


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_archive_leaves_nothing(rig: StoreRig, name: str) -> None:
    """And its words are those of a model, with one line."""
    rig.bucket.put(name, HOSTILE[name])
    with pytest.raises(InvalidModel) as caught:
        await opened(rig.store, spec(name))
    assert (caught.value.reason, "\n" in caught.value.text) == ("invalid_model", False)
    assert await is_settled(rig)
    rig.bucket.put("honest.tgz", gzip.compress(forged_tar([OK])))
    model = await opened(rig.store, spec("honest.tgz"))
    assert [(file.path, file.size_bytes) for file in model.listing.files] == [("ok", 7)]
    model.close()
    assert await is_settled(rig)


async def test_a_folder_around_the_deepest_path_is_taken_off(rig: StoreRig) -> None:
    """What is listed then is what lies there: 499 levels, links of the archive with their lengths."""
    path = b"/".join([b"d"] * 498) + b"/f"
    entries = [long_name(b"m/" + path), Tarred(b"a", b"abc"), Tarred(b"m/l", kind=b"1", link=b"")]
    rig.bucket.put("m.tar", forged_tar([*entries[:2], pax((b"linkpath", b"m/" + path)), entries[2]]))
    model = await opened(rig.store, spec("m.tar"))
    assert [(file.path, file.size_bytes) for file in model.listing.files] == [(path.decode(), 3), ("l", 3)]
    assert await model.read(model.listing.files[0]) == b"abc"
    artifact = await model.fetch(model.listing.files)
    await rig.store.release(artifact)
    assert await is_settled(rig)


KEYS = {
    "levels": ["m/" + "d/" * 1200 + "f"],
    "bytes": ["m/" + ("n" * 200 + "/") * 20 + "f"],
    "folders": [f"m/{number}/" + "/".join("d" * 400) + "/f" for number in range(300)],
}


@pytest.mark.parametrize("what", KEYS)
async def test_keys_of_a_bucket_have_the_same_bounds(rig: StoreRig, what: str) -> None:
    """Before a byte is pulled: what no volume could hold, or what would need 100,000 folders of long names."""
    for key in KEYS[what]:
        rig.bucket.put(key, b"x")
    with pytest.raises(InvalidRequest, match=r"more than (500 levels|3072 bytes|32 MiB, all)"):
        await opened(rig.store, a_spec("m"))
    assert not [call for call in rig.bucket.calls if call.startswith("read")]
