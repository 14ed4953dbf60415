"""One rig for each storage type, seen as the lifecycle sees it: a store, a storage secret, and a place to put files."""

from __future__ import annotations

import itertools
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapter.records import Digests
from adapter.storage.store import Store
from adapter.volume.space import Space
from adapter.volume.volume import Volume
from tests.fakes.web import plain_web
from tests.real.clouds import AzureServer, GcsServer
from tests.real.s3 import S3Server
from tests.real.web import WebServer
from tests.unit.storage.rigs import pull_settings

MIB = 1024 * 1024
_numbers = itertools.count()


@dataclass(frozen=True)
class Stock:
    """An empty bucket, container, claim or web site, and the storage config that leads to it."""

    config: dict[str, str]
    put: Callable[[str, bytes], None]
    remove: Callable[[str], None]
    has_folders: bool = True
    """False: only single files can be asked for."""
    is_copied: bool = True
    """False: served from where the files are."""
    settle: Callable[[str], None] = lambda _: None
    """Some time has passed since this was put."""


@dataclass(frozen=True)
class ModelRig:
    """A store whose storage key `k` leads to a stock."""

    stock: Stock
    store: Store
    volume: Volume

    @property
    def is_clean(self) -> bool:
        """Nothing of ours is on the volume."""
        return not any(any(folder.iterdir()) for folder in (self.volume.staging_dir, self.volume.artifacts_dir, self.volume.trash_dir))


def make_store(folder: Path, volume: Volume, config: dict[str, str], *, threads: int = 4, cache_bytes: int = 0) -> Store:
    """A store over real buckets whose secret has the key `k`, which keeps up to `cache_bytes` of idle artifacts."""
    (folder / "config").mkdir(exist_ok=True)
    (folder / "config/k").write_text(json.dumps(config))
    return Store(
        settings=pull_settings(folder, threads=threads),
        root=folder / "models",
        volume=volume,
        space=Space(volume.cache_dir, cache_bytes, refuses=False),
        digests=Digests(b"salt"),
        part_bytes=MIB,
        jitter=lambda: 1.0,
    )


def s3_stock(request: pytest.FixtureRequest) -> Stock:
    """A bucket of a real S3 server."""
    server: S3Server = request.getfixturevalue("s3_server")
    bucket: str = request.getfixturevalue("bucket")
    return Stock(
        server.storage_config(bucket),
        lambda key, content: server.put(bucket, key, content),
        lambda key: (server.root / bucket / key).unlink(),
    )


def pvc_stock(request: pytest.FixtureRequest) -> Stock:
    """A folder where a claim would be mounted."""
    claim: Path = request.getfixturevalue("tmp_path") / "claims" / "my-claim"
    claim.mkdir(parents=True)
    return Stock({"type": "pvc", "name": "my-claim"}, _writer(claim), lambda key: (claim / key).unlink(), is_copied=False)


def http_stock(request: pytest.FixtureRequest) -> Stock:
    """A real web server with ETags and ranges."""
    server: WebServer = request.getfixturevalue("web_server")
    place = f"site-{next(_numbers)}"
    put, remove = _writer(server.root / place), lambda key: (server.root / place / key).unlink()
    return Stock({"type": "http", "url": f"{server.url}/{place}"}, put, remove, has_folders=False)


def plain_http_stock(request: pytest.FixtureRequest) -> Stock:
    """A real web server without."""
    folder: Path = request.getfixturevalue("tmp_path") / "site"
    folder.mkdir()
    web = plain_web(folder)
    url = web.__enter__()
    request.addfinalizer(lambda: web.__exit__(None, None, None))
    return Stock(
        {"type": "http", "url": f"{url}/"},
        _writer(folder),
        lambda key: (folder / key).unlink(),
        has_folders=False,
        settle=lambda key: os.utime(folder / key, (time.time() - 60,) * 2),
    )


def gcs_stock(request: pytest.FixtureRequest) -> Stock:
    """A bucket of an emulator."""
    server: GcsServer = request.getfixturevalue("gcs_server")
    name = f"bucket-{next(_numbers)}"
    server.make_bucket(name)
    return Stock(server.storage_config(name), lambda key, content: server.put(name, key, content), lambda key: server.remove(name, key))


def azure_stock(request: pytest.FixtureRequest) -> Stock:
    """A container of an emulator."""
    server: AzureServer = request.getfixturevalue("azure_server")
    name = f"container-{next(_numbers)}"
    server.make_container(name)
    return Stock(server.storage_config(name), lambda key, content: server.put(name, key, content), lambda key: server.remove(name, key))


def _writer(folder: Path) -> Callable[[str, bytes], None]:
    def put(key: str, content: bytes) -> None:
        target, new = folder / key, folder / f".new-{next(_numbers)}"
        target.parent.mkdir(parents=True, exist_ok=True)
        new.write_bytes(content)
        new.replace(target)

    return put


STOCKS: dict[str, Callable[[pytest.FixtureRequest], Stock]] = {
    "s3": s3_stock,
    "gcs": gcs_stock,
    "azure": azure_stock,
    "pvc": pvc_stock,
    "http": http_stock,
    "http without ranges": plain_http_stock,
}
