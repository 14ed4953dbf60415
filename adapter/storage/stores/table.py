"""
Every type of store: one row each.

A store of objects is a folder here, with its `STORE`, and a row in `BUCKETS`; a store without buckets has
a row in `Finders` with a finder of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from adapter.errors import InvalidRequest
from adapter.storage.bucket import Bucket
from adapter.storage.lanes import EndpointThreads
from adapter.storage.mounted.claims import Claims
from adapter.storage.pull.archives import is_archive
from adapter.storage.pull.listing import find_model
from adapter.storage.pull.remote import Means, RemoteModel
from adapter.storage.pull.unpacked import PackedModel, Unpacker
from adapter.storage.search import Finder, Search
from adapter.storage.secret.endpoints import endpoint_of
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores import azure, gcs, http, s3
from adapter.storage.stores.health import Health
from adapter.storage.stores.retried import Patience, RetriedBucket, made
from adapter.waits import Waits
from adapter.workers import Stop

BUCKETS = {"s3": s3.STORE, "http": http.STORE, "gcs": gcs.STORE, "azure": azure.STORE}
BINDINGS = {name: store.binding for name, store in BUCKETS.items()}


class KeptClients(Protocol):
    """What `Clients` does, as tests replace it. Blocks."""

    def warm(self, config: StorageConfig, stop: Stop) -> None:
        """Make what is slow to make."""
        ...

    def bucket(self, config: StorageConfig, stop: Stop) -> Bucket:
        """The bucket of this config."""
        ...

    def close(self) -> None:
        """Close all connections."""
        ...


@dataclass(frozen=True, kw_only=True)
class InBuckets:
    """Finds models in buckets. Implements `Finder`."""

    clients: KeptClients
    means: Means
    unpacker: Unpacker
    health: Health
    surveys: EndpointThreads
    """Threads for searches that no load waits for."""
    jitter: Callable[[], float]

    def warm(self, config: StorageConfig, stop: Stop) -> None:
        """As `Finder`."""
        self.clients.warm(config, stop)

    async def find(self, config: StorageConfig, search: Search) -> RemoteModel | PackedModel:
        """As `Finder`."""
        search.endpoint = endpoint_of(config.type, config.values)
        asks = self.surveys if search.is_survey else self.means.asks
        return await asks.run(search.endpoint, search.waits, lambda stop: self._found(config, search, stop))

    def _found(self, config: StorageConfig, search: Search, stop: Stop) -> RemoteModel | PackedModel:
        patience = Patience(waits=search.waits, health=self.health, jitter=self.jitter, is_survey=search.is_survey)
        bare = made(lambda bound: self.clients.bucket(config, bound), patience, kind=config.type, label=config.label, stop=stop)
        found = find_model(RetriedBucket(bare, patience), search, stop)

        def bucket_for(waits: Waits) -> Bucket:
            return RetriedBucket(bare, replace(patience, waits=waits))

        is_shared = not BUCKETS[config.type].has_versions_of_config
        remote = RemoteModel(found, means=self.means, search=search, bucket_for=bucket_for, is_shared=is_shared)
        if config.fields.flag("unpack", default=False) and found.single is not None and is_archive(found.listing.name):
            packed = PackedModel(remote, self.unpacker)
            search.tell(packed, stop)
            return packed
        if search.is_survey:
            search.tell(remote, stop)
        else:
            remote.read_ahead(search.wanted, stop)
        return remote


class Finders:
    """Who finds models, for each type of store."""

    def __init__(self, in_buckets: InBuckets, in_claims: Claims) -> None:
        self._known: Mapping[str, Finder] = {**dict.fromkeys(BUCKETS, in_buckets), "pvc": in_claims}

    def of(self, config: StorageConfig) -> Finder:
        """The finder for the type of a config. Raises InvalidRequest when there is no such type."""
        if config.type not in self._known:
            raise InvalidRequest(f"storage type {config.type!r} is not supported; supported: {', '.join(self._known)}")
        return self._known[config.type]
