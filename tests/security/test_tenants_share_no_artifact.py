"""
Somebody's own server lists anybody's keys, versions and sizes: it is given nothing of theirs, and has nothing of its own served.

What decides whose bytes a request sees decides which artifact it gets; that both addresses have one host is not enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from adapter.model import Listing, ModelSpec, SourceFile
from adapter.records import Digests
from adapter.storage.bucket import Read, StoredObject
from adapter.storage.secret.merging import StorageConfig
from adapter.volume.volume import Volume
from tests.builders import a_spec
from tests.fakes.memory_bucket import MemoryBucket
from tests.unit.storage.rigs import StoreRig, make_rig, opened

S3 = {"type": "s3", "endpoint_url": "http://gateway:9000/team-a", "bucket": "b", "access_key_id": "a", "secret_access_key": "x"}
HTTP = {"type": "http", "url": "http://gateway/models", "headers.Host": "team-a", "headers.Authorization": "Bearer aaa"}
OPEN_HTTP = {"type": "http", "url": "http://gateway/models"}
OWN_S3 = {"access_key_id": "evil", "secret_access_key": "evil"}
OWN_HTTP = {"headers.Authorization": "Bearer evil"}
LEADING_ELSEWHERE = {
    "another scheme": (S3, OWN_S3 | {"endpoint_url": "https://gateway:9000/team-a"}),
    "another path of one gateway": (S3, OWN_S3 | {"endpoint_url": "http://gateway:9000/team-b"}),
    "no path": (S3, OWN_S3 | {"endpoint_url": "http://gateway:9000"}),
    "another region": (S3, OWN_S3 | {"region": "cn-north-1"}),
    "another addressing": (S3, OWN_S3 | {"addressing_style": "virtual"}),
    "another trust": (S3, OWN_S3 | {"certificate": "-----BEGIN CERTIFICATE-----"}),
    "another virtual host": (OPEN_HTTP, OWN_HTTP | {"headers.Host": "team-b"}),
    "another forwarded host": (HTTP, OWN_HTTP | {"headers.X-Forwarded-Host": "team-b"}),
    "another query of one gateway": (
        S3 | {"endpoint_url": "http://gateway:9000/?team=a"},
        OWN_S3 | {"endpoint_url": "http://gateway:9000/?team=b"},
    ),
    "another query": (HTTP, OWN_HTTP | {"url": "http://gateway/models?team=b"}),
}
PATH = "m.onnx"


class AsListed(MemoryBucket):
    """A bucket that says of itself what the real stores say, and whose listing is that of somebody else's bucket."""

    def __init__(self, content: bytes, config: StorageConfig, listed: bytes) -> None:
        super().__init__({PATH: content})
        url = urlsplit(str(config.values.get("endpoint_url") or config.values.get("url")))
        self.kind, self.endpoint = config.type, url.netloc
        self.place = "s3://b" if config.type == "s3" else f"{url.scheme}://{url.netloc}{url.path}"
        self._listed = MemoryBucket({PATH: listed})

    def stored(self, key: str) -> StoredObject:
        return self._listed.stored(key)

    async def read(self, reads: Sequence[Read]) -> None:
        for read in reads:
            read.wanted = super().stored(read.wanted.key)
            await super().read((read,))


VICTIMS, EVIL = b"of the victim" * 10, b"of the enemy!" * 10


@pytest.fixture
def rig(tmp_path: Path, volume: Volume) -> Iterator[StoreRig]:
    """A cache, and servers of two people."""
    made = make_rig(tmp_path, volume, cache_bytes=1 << 30)

    async def bucket(config: StorageConfig) -> MemoryBucket:
        return AsListed(EVIL if "evil" in str(config.values) else VICTIMS, config, VICTIMS)

    made.clients.bucket = bucket  # type: ignore[method-assign]
    yield made
    made.store.close()


async def given(rig: StoreRig, params: dict[str, str]) -> bytes:
    model = await opened(rig.store, a_spec(PATH, storage_key="k", storage_params=params), 60)
    artifact = await model.fetch(model.listing.files)
    content = (artifact.root / PATH).read_bytes()
    await rig.store.release(artifact)
    return content


@pytest.mark.parametrize("name", LEADING_ELSEWHERE)
@pytest.mark.parametrize("who_is_first", ["victim", "enemy"])
async def test_a_server_of_ones_own_gives_and_gets_its_own_bytes_only(rig: StoreRig, name: str, who_is_first: str) -> None:
    stored, params = LEADING_ELSEWHERE[name]
    rig.configure("k", stored)
    wanted = [({}, VICTIMS), (params, EVIL)]
    for asked, content in wanted if who_is_first == "victim" else wanted[::-1]:
        assert await given(rig, asked) == content


async def test_credentials_of_a_request_share_no_artifact_with_the_stored_ones(rig: StoreRig) -> None:
    """They pull a copy of their own, and so must be allowed to read."""
    rig.configure("k", S3)
    await given(rig, {})
    await given(rig, dict.fromkeys(OWN_S3, "guest"))
    assert len(list(rig.volume.artifacts_dir.iterdir())) == 2


def test_nobody_uses_up_the_crashes_of_somebody_elses_model() -> None:
    """Three deaths over a listing that a request's own server made up do not block the model that it imitates."""
    digests, listing = Digests(b"salt"), Listing("s3://b/m", "m", False, (SourceFile("1/model.onnx", 3, "e"),), None)

    def crash(params: dict[str, str]) -> str:
        spec: ModelSpec = a_spec("m", storage_key="k", storage_params=params)
        return digests.of_crash(spec, listing)

    assert crash({}) != crash({"endpoint_url": "http://evil"})
    assert crash({"a": "1", "b": "2"}) == crash({"b": "2", "a": "1"})
