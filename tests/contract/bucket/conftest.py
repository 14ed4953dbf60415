"""One rig for each kind of store: the same suite runs on all of them."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from adapter.storage.bucket import Bucket, StoredObject
from adapter.storage.stores.table import BUCKETS
from adapter.volume.volume import Volume
from adapter.workers import Stop
from tests.contract.bucket.model_rigs import STOCKS, ModelRig, Stock, make_store
from tests.fakes.http_proxy import VARIABLES
from tests.fakes.memory_bucket import MemoryBucket
from tests.fakes.s3_proxy import S3Proxy
from tests.real import parts
from tests.real.blocking import BlockingBucket, BlockingClients
from tests.real.clouds import AzureServer, GcsServer
from tests.real.s3 import S3Server
from tests.real.web import WebServer
from tests.unit.storage.rigs import make_config

_numbers = itertools.count()


@dataclass(frozen=True)
class Rig:
    """An empty bucket and ways to change it behind its back."""

    bucket: BlockingBucket
    put: Callable[[str, bytes], None]
    remove: Callable[[str], None]
    absent: BlockingBucket
    """A bucket that does not exist, in the same store."""
    lists: bool = True
    """False: a page shows one file only, by its whole key."""

    def stored(self, key: str) -> StoredObject:
        """The object as it is listed now."""
        return next(row for row in self.bucket.list_page(key, Stop()).objects if row.key == key)

    def require_listings(self) -> None:
        """Skip a test that needs more than single files."""
        if not self.lists:
            pytest.skip("this store has no listings")


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    """A real S3 server."""
    with S3Server() as server:
        yield server


def _emulator(made: type[GcsServer] | type[AzureServer]) -> Iterator[GcsServer | AzureServer]:
    server = made()
    parts.or_skip(server.command)
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


def bucket_of(values: Mapping[str, object], **changes: object) -> BlockingBucket:
    """The bucket of a storage config."""
    return BlockingClients().bucket(make_config({**values, **changes}))


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


@pytest.fixture
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No credentials anywhere, no proxies, no authorities."""
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("HOME", str(tmp_path / "absent"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    keys = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE")
    for name in (*keys, *VARIABLES, "AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(params=["memory", *BUCKETS])
def rig(request: pytest.FixtureRequest) -> Rig:
    """An empty bucket of each kind of store."""
    if request.param == "memory":
        bucket, absent = MemoryBucket(), MemoryBucket(bucket="absent")
        absent.remove_bucket()
        return Rig(BlockingBucket(bucket), bucket.put, bucket.remove, BlockingBucket(absent))
    stock = STOCKS[request.param](request)
    absent_fields = {"azure": {"container": "no-such-bucket"}, "http": {"url": "http://127.0.0.1:1"}}
    absent_bucket = bucket_of(stock.config, **absent_fields.get(request.param, {"bucket": "no-such-bucket"}))
    return Rig(bucket_of(stock.config), stock.put, stock.remove, absent_bucket, lists=stock.has_folders)


@dataclass(frozen=True)
class SpoiledRig:
    """A bucket with one object behind a proxy that spoils answers."""

    stock: Stock
    proxy: S3Proxy
    config: Mapping[str, str]
    """Leads through the proxy."""
    bucket: Bucket
    key: str
    content: bytes

    def listed(self, stop: Stop | None = None) -> StoredObject:
        """The object, asked for anew."""
        return self.bucket.list_page(self.key, stop or Stop()).objects[0]

    def read(self, stored: StoredObject, start: int = 0, length: int | None = None, stop: Stop | None = None) -> bytes:
        """Of the object; all of it unless told."""
        return self.bucket.bytes_of(stored, start, length, stop)

    def call(self, name: str, stored: StoredObject, stop: Stop | None = None) -> object:
        """`list` or `read`."""
        return self.listed(stop) if name == "list" else self.read(stored, stop=stop)

    def through_proxy(self, **changes: str) -> Bucket:
        """The same place with changed fields."""
        return bucket_of(self.config, **changes)


def spoiled_rig(request: pytest.FixtureRequest, kind: str) -> Iterator[SpoiledRig]:
    """One of a kind of store."""
    stock = STOCKS[kind](request)
    content = bytes(range(256)) * 1200
    stock.put("m/file", content)
    place = "url" if kind == "http" else "endpoint_url"
    server = urlsplit(stock.config[place])
    with S3Proxy(stock.config[place]) as proxy:
        config = {**stock.config, place: f"{proxy.endpoint_url}{server.path}"}
        yield SpoiledRig(stock, proxy, config, bucket_of(config), "m/file", content)


@pytest.fixture(params=list(BUCKETS))
def spoiled(request: pytest.FixtureRequest) -> Iterator[SpoiledRig]:
    """Of each kind of store that is asked over a network."""
    yield from spoiled_rig(request, request.param)


@pytest.fixture(params=list(STOCKS))
def models(request: pytest.FixtureRequest, tmp_path: Path, volume: Volume) -> Iterator[ModelRig]:
    """A store over each storage type."""
    stock = STOCKS[request.param](request)
    made = ModelRig(stock, make_store(tmp_path, volume, stock.config), volume)
    yield made
    made.store.close()


@pytest.fixture
def folders(models: ModelRig) -> ModelRig:
    """Of those, the ones that know folders."""
    if not models.stock.has_folders:
        pytest.skip(f"type {models.stock.config['type']} has single files only")
    return models
