"""One bed for each kind of store: the same suite runs on all of them."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from adapter.storage.connection import connection_of
from adapter.storage.credentials import StorageConfig
from adapter.storage.http import HttpClient, HttpSource
from adapter.storage.http_connection import http_connection_of
from adapter.storage.s3 import S3Client
from adapter.storage.source import ObjectSource, StoredObject
from adapter.storage.sources import Sources
from adapter.volume import Volume
from adapter.workers import Stop
from tests.contract.source.model_beds import SHELVES, ModelBed, make_store
from tests.fakes.memory_source import MemorySource
from tests.fakes.s3_proxy import S3Proxy
from tests.real.clouds import AzureServer, GcsServer
from tests.real.install import CannotRunError
from tests.real.s3 import S3Server
from tests.real.web import WebServer

_numbers = itertools.count()


@dataclass(frozen=True)
class Bed:
    """An empty bucket and ways to change it behind the source's back."""

    source: ObjectSource
    put: Callable[[str, bytes], None]
    remove: Callable[[str], None]
    absent: ObjectSource
    """A bucket that does not exist, in the same store."""
    lists: bool = True
    """False: a page shows one file only, by its whole key."""

    def stored(self, key: str) -> StoredObject:
        """The object as it is listed now."""
        return next(row for row in self.source.list_page(key, Stop()).objects if row.key == key)

    def require_listings(self) -> None:
        """Skip a test that needs more than single files."""
        if not self.lists:
            pytest.skip("this store has no listings")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 server."""
    with S3Server() as server:
        yield server


@pytest.fixture(scope="session")
def s3_client(s3_server: S3Server) -> S3Client:
    """A client of it."""
    return S3Client(connection_of(s3_server.storage_config(), "test"), 16)


def _emulator(made: type[GcsServer] | type[AzureServer]) -> Iterator[GcsServer | AzureServer]:
    try:
        server = made()
        server.command()
    except CannotRunError as error:
        if os.environ.get("CI"):
            raise
        pytest.skip(str(error))
    with server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[GcsServer | AzureServer]:
    """An emulator of Google Cloud Storage."""
    yield from _emulator(GcsServer)


@pytest.fixture(scope="session")
def azure_server() -> Iterator[GcsServer | AzureServer]:
    """An emulator of Azure Blob Storage."""
    yield from _emulator(AzureServer)


def cloud_source(values: dict[str, str], **changes: object) -> ObjectSource:
    """The bucket of a storage config."""
    merged: dict[str, object] = {**values, **changes}
    bucket = str(merged.get("bucket") or "") or None
    return Sources(16).source(StorageConfig(type=values["type"], bucket=bucket, values=merged, label="storage config 'k'"))


@pytest.fixture
def bucket(s3_server: S3Server) -> str:
    """A new empty bucket."""
    name = f"bucket-{next(_numbers)}"
    (s3_server.root / name).mkdir()
    return name


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    """A proxy in front of the server."""
    with S3Proxy(s3_server.endpoint_url) as started:
        yield started


@pytest.fixture(scope="session")
def web_server() -> Iterator[WebServer]:
    """A real web server."""
    with WebServer() as server:
        yield server


def http_source(url: str, **fields: object) -> HttpSource:
    """A web server from this URL on."""
    config = StorageConfig(type="http", bucket=None, values={"url": url} | fields, label="storage config 'k'")
    return HttpClient(http_connection_of(config), 16).source(config)


@pytest.fixture(params=["memory", "s3", "gcs", "azure", "http"])
def bed(request: pytest.FixtureRequest) -> Bed:
    """An empty bucket of each kind of store."""
    if request.param == "memory":
        source, absent = MemorySource(), MemorySource(bucket="absent")
        absent.remove_bucket()
        return Bed(source, source.put, source.remove, absent)
    if request.param in ("gcs", "azure"):
        shelf = SHELVES[request.param](request)
        absent = {"gcs": "bucket", "azure": "container"}[request.param]
        return Bed(cloud_source(shelf.config), shelf.put, shelf.remove, cloud_source(shelf.config, **{absent: "no-such-bucket"}))
    if request.param == "http":
        web: WebServer = request.getfixturevalue("web_server")
        site = f"bed-{next(_numbers)}"
        return Bed(
            http_source(f"{web.url}/{site}"),
            lambda key, content: web.put(f"{site}/{key}", content),
            lambda key: (web.root / site / key).unlink(),
            http_source("http://127.0.0.1:1"),
            lists=False,
        )
    server: S3Server = request.getfixturevalue("s3_server")
    client: S3Client = request.getfixturevalue("s3_client")
    name: str = request.getfixturevalue("bucket")
    return Bed(
        client.bucket(name),
        lambda key, content: server.put(name, key, content),
        lambda key: (server.root / name / key).unlink(),
        client.bucket("no-such-bucket"),
    )


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Volume]:
    """A claimed volume."""
    made = Volume(tmp_path / "models/_triton_models", tmp_path / "models/_adapter")
    made.claim()
    yield made
    made.close()


@pytest.fixture(params=list(SHELVES))
def models(request: pytest.FixtureRequest, tmp_path: Path, volume: Volume) -> Iterator[ModelBed]:
    """A store over each storage type."""
    shelf = SHELVES[request.param](request)
    made = ModelBed(shelf, make_store(tmp_path, volume, shelf.config), volume)
    yield made
    made.store.close()


@pytest.fixture
def folders(models: ModelBed) -> ModelBed:
    """Of those, the ones that know folders."""
    if not models.shelf.has_folders:
        pytest.skip(f"type {models.shelf.config['type']} has single files only")
    return models
