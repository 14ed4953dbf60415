"""The storage secret is re-read at each load: Kubernetes swaps `..data`, and the adapter does not restart."""

from __future__ import annotations

import json
import os

import pytest

from adapter.errors import InvalidRequest, SourceDenied
from tests.builders import a_spec
from tests.contract.bucket.model_rigs import make_store
from tests.real.s3 import S3Server
from tests.unit.storage.rigs import opened


class MountedSecret:
    """A folder as the kubelet makes it: links to `..data/<key>`, and `..data` a link that is swapped in one step."""

    def __init__(self, folder):
        self.folder = folder
        self._generation = 0

    def update(self, entries):
        self._generation += 1
        version = self.folder / f"..2026_{self._generation}"
        version.mkdir(parents=True)
        for key, config in entries.items():
            (version / key).write_text(json.dumps(config))
        (self.folder / "..data_tmp").symlink_to(version.name)
        os.replace(self.folder / "..data_tmp", self.folder / "..data")
        for key in entries:
            if not (self.folder / key).is_symlink():
                (self.folder / key).symlink_to(f"..data/{key}")
        for path in self.folder.iterdir():
            if not path.name.startswith("..") and path.name not in entries:
                path.unlink()


@pytest.fixture
def secret(tmp_path):
    """The mounted storage secret, empty."""
    (tmp_path / "config").mkdir()
    return MountedSecret(tmp_path / "config")


@pytest.fixture
def store(tmp_path, volume, secret):
    """A store that reads it."""
    made = make_store(tmp_path, volume, {})
    (tmp_path / "config/k").unlink()
    yield made
    made.close()


@pytest.fixture
def stores():
    """Two S3 servers with keys of their own: what a rotation does to a server."""
    with S3Server() as old, S3Server() as new:
        for server, content in ((old, b"old"), (new, b"new content")):
            server.put("b", "m/file", content)
        yield old, new


def spec(key="k"):
    return a_spec("m/file", storage_key=key)


async def size(store):
    return (await opened(store, spec())).listing.size_bytes


async def test_rotated_keys_are_used_by_the_next_load(store, secret, stores):
    """With a client of their own; the old keys no longer work anywhere."""
    old, new = stores
    rotated = new.storage_config("b") | {"access_key_id": old.access_key, "secret_access_key": old.secret_key}
    secret.update({"k": rotated})
    with pytest.raises(SourceDenied, match="storage config 'k'"):
        await opened(store, spec())
    secret.update({"k": new.storage_config("b")})
    assert await size(store) == len(b"new content")
    secret.update({"k": rotated})
    with pytest.raises(SourceDenied):
        await opened(store, spec())


async def test_a_key_that_is_taken_away_is_gone(store, secret, stores):
    """Though its client is still kept."""
    old, _ = stores
    secret.update({"k": old.storage_config("b")})
    assert await size(store) == len(b"old")
    secret.update({"other": old.storage_config("b")})
    with pytest.raises(InvalidRequest, match="there is no storage config 'k'; storage keys that exist: 'other'"):
        await opened(store, spec())
