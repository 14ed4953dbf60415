"""The storage secret is re-read at each load: Kubernetes swaps `..data`, and nobody restarts."""

from __future__ import annotations

import json
import os

import pytest

from adapter.errors import InvalidRequest, SourceDenied
from tests.builders import a_spec
from tests.contract.bucket.model_rigs import make_store
from tests.fakes.web import Answer, Web
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


async def test_prepare_makes_clients_and_not_the_truth(store, secret, stores, capsys):
    """What it made before the rotation is not what the next load uses."""
    old, new = stores
    secret.update({"k": old.storage_config("b")})
    await store.prepare()
    assert await size(store) == len(b"old")
    secret.update({"k": new.storage_config("b"), "added": new.storage_config("b")})
    assert await size(store) == len(b"new content")
    assert (await opened(store, spec("added"))).listing.size_bytes == len(b"new content")
    assert "storage.config_unusable" not in capsys.readouterr().out


async def test_a_model_that_is_open_goes_on_with_its_own_keys(store, secret, stores):
    """A pull under way is one view of the secret from begin to end."""
    old, new = stores
    secret.update({"k": old.storage_config("b")})
    model = await opened(store, spec())
    secret.update({"k": new.storage_config("b")})
    artifact = await model.fetch(model.listing.files)
    assert (artifact.root / "file").read_bytes() == b"old"
    await store.release(artifact)


async def test_a_key_that_is_taken_away_is_gone(store, secret, stores):
    """Though its client is still kept."""
    old, _ = stores
    secret.update({"k": old.storage_config("b")})
    assert await size(store) == len(b"old")
    secret.update({"other": old.storage_config("b")})
    with pytest.raises(InvalidRequest, match="there is no storage config 'k'; storage keys that exist: 'other'"):
        await opened(store, spec())


async def test_a_rotated_header_is_used_by_the_next_load(store, secret):
    """Headers are no part of a connection, so the client stays and they do not."""
    with Web() as web:
        web.answers["/m/file"] = Answer(200, {}, b"abc")
        for token in ("one", "two"):
            secret.update({"k": {"type": "http", "url": web.url, "headers.Authorization": token}})
            assert await size(store) == 3
        assert [request.headers["authorization"] for request in web.requests] == ["one", "two"]
