"""Clients are kept by connection, the last ones only; who is evicted is closed."""

from __future__ import annotations

import sys

import pytest

from adapter.errors import InvalidRequest
from adapter.storage.stores.clients import BucketStore, Clients, Means
from adapter.storage.stores.table import BINDINGS, BUCKETS
from adapter.workers import Stop
from tests.fakes.memory_bucket import MemoryBucket
from tests.unit.storage.beds import make_config


class CountedClient:
    """Knows whether it was closed."""

    def __init__(self, connection, max_connections):
        self.connection = connection
        self.is_closed = False

    def bucket(self, config):
        return MemoryBucket(bucket=config.required_bucket())

    def close(self):
        self.is_closed = True


@pytest.fixture
def made():
    """All clients that were made."""
    return []


@pytest.fixture
def clients(made, monkeypatch):
    """Two are kept; the region of a config is its connection."""
    monkeypatch.setattr("adapter.storage.stores.clients.KEPT_CLIENTS", 2)

    def make(connection, means, stop):
        made.append(CountedClient(connection, means.max_connections))
        return made[-1]

    return Clients({"s3": BucketStore(BINDINGS["s3"], lambda config: config.values["region"], make)}, Means(max_connections=4))


def config(region, bucket="b"):
    return make_config({"region": region, "bucket": bucket})


def test_equal_connections_share_a_client(clients, made):
    """Whatever their buckets; another connection has its own."""
    places = [clients.bucket(config("r", bucket), Stop()).place for bucket in ("b", "b", "c")]
    assert places == ["memory://b", "memory://b", "memory://c"] and len(made) == 1
    clients.warm(config("q"), Stop())
    assert [client.connection for client in made] == ["r", "q"]


def test_only_the_last_clients_are_kept(clients, made):
    """Requests can name any number of endpoints; whoever goes is closed."""
    for region in ("1", "2", "1", "3", "1"):
        clients.warm(config(region), Stop())
    assert [(client.connection, client.is_closed) for client in made] == [("1", False), ("2", True), ("3", False)]


def test_closing_closes_all(clients, made):
    """Each once; a later call makes new ones."""
    clients.warm(config("1"), Stop())
    clients.warm(config("2"), Stop())
    clients.close()
    assert [client.is_closed for client in made] == [True, True]


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_a_missing_extra_is_named(kind, monkeypatch):
    """An image for S3 alone has no libraries of other clouds."""
    monkeypatch.delitem(sys.modules, f"adapter.storage.stores.{kind}.client", raising=False)
    monkeypatch.setitem(sys.modules, "google.cloud", None)
    monkeypatch.setitem(sys.modules, "azure.storage.blob", None)
    values = {"type": kind, "anonymous": "true", "account_name": "a"}
    with pytest.raises(InvalidRequest, match=rf"^storage type '{kind}' needs pip install modelmesh-triton-adapter\[{kind}\]$"):
        Clients(BUCKETS, Means(max_connections=4)).warm(make_config(values), Stop())


def test_no_bucket_is_invalid():
    """Neither in the config nor in the request."""
    with pytest.raises(InvalidRequest, match=r"^no bucket: storage config 'k' has neither bucket nor default_bucket"):
        Clients(BUCKETS, Means(max_connections=4)).bucket(make_config({"anonymous": "true"}), Stop())
