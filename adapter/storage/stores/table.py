"""
Every type of store: one row each.

A store of objects is a folder here, with its `STORE`, and a row in `BUCKETS`; what is no bucket has a
row in `finders` with a finder of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from adapter.errors import InvalidRequest
from adapter.storage.bucket import Bucket
from adapter.storage.mounted.claims import Claims
from adapter.storage.pull.archives import is_archive
from adapter.storage.pull.listing import find_model
from adapter.storage.pull.puller import Puller
from adapter.storage.pull.remote import RemoteModel
from adapter.storage.pull.unpacked import PackedModel, Unpacker
from adapter.storage.search import Finder, Search
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores import azure, gcs, http, s3
from adapter.storage.stores.retried import RetriedBucket
from adapter.workers import Stop, Workers

BUCKETS = {"s3": s3.STORE, "http": http.STORE, "gcs": gcs.STORE, "azure": azure.STORE}
BINDINGS = {name: store.binding for name, store in BUCKETS.items()}


class KeptClients(Protocol):
    """What `Clients` does, as tests replace it. Blocks."""

    def warm(self, config: StorageConfig) -> None:
        """Make what is slow to make."""
        ...

    def bucket(self, config: StorageConfig) -> Bucket:
        """The bucket of this config."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


@dataclass(frozen=True, kw_only=True)
class Means:
    """What finders work with."""

    clients: KeptClients
    puller: Puller
    unpacker: Unpacker
    asks: Workers
    """Threads that wait for stores."""
    pvc_mounts: Path
    jitter: Callable[[], float]


def finders(means: Means) -> Mapping[str, Finder]:
    """Who finds models, for each type of store."""
    return {**dict.fromkeys(BUCKETS, _InBuckets(means)), "pvc": Claims(means.pvc_mounts, means.asks)}


def finder_of(config: StorageConfig, known: Mapping[str, Finder]) -> Finder:
    """
    The finder for the type of a config.

    Raises:
        InvalidRequest: there is no such type.
    """
    if config.type not in known:
        raise InvalidRequest(f"storage type {config.type!r} is not supported; supported: {', '.join(known)}")
    return known[config.type]


class _InBuckets:
    """Finds models in buckets. Implements `Finder`."""

    def __init__(self, means: Means) -> None:
        self._means = means

    def warm(self, config: StorageConfig) -> None:
        self._means.clients.warm(config)

    def find(self, config: StorageConfig, search: Search, stop: Stop) -> RemoteModel | PackedModel:
        means = self._means
        with search.waits.on(f"a client for {config.label}"):
            bare = means.clients.bucket(config)
        bucket = RetriedBucket(bare, search.waits, jitter=means.jitter)
        found = find_model(bucket, search, stop)
        remote = RemoteModel(bucket=bucket, found=found, puller=means.puller, asks=means.asks)
        if config.fields.flag("unpack", default=False) and found.single is not None and is_archive(found.listing.name):
            return PackedModel(unpacker=means.unpacker, bucket=bucket, found=found, remote=remote, waits=search.waits)
        return remote
