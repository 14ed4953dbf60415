"""
Every type of store: one row each.

A store of objects is a folder here, with its `STORE`, and a row in `BUCKETS`; a store without buckets has
a row in `Finders` with a finder of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from adapter.errors import InvalidRequest
from adapter.storage.bucket import Bucket
from adapter.storage.mounted.finders import Claims
from adapter.storage.pull.archives import is_archive
from adapter.storage.pull.listing import find_model
from adapter.storage.pull.remote import Means, RemoteModel
from adapter.storage.pull.unpacked import PackedModel, Unpacker
from adapter.storage.queues import EndpointQueues
from adapter.storage.search import Finder, Search
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores import azure, gcs, http, s3
from adapter.storage.stores.tries import Endpoints, RetriedBucket
from adapter.waits import Waits

BUCKETS = {"s3": s3.STORE, "http": http.STORE, "gcs": gcs.STORE, "azure": azure.STORE}
BINDINGS = {name: store.binding for name, store in BUCKETS.items()}


class KeptClients(Protocol):
    """What `Clients` does, as tests replace it."""

    async def warm(self, config: StorageConfig) -> None:
        """Make the client of this config, ahead of any load."""
        ...

    async def bucket(self, config: StorageConfig) -> Bucket:
        """The bucket of this config."""
        ...


@dataclass(frozen=True, kw_only=True)
class InBuckets:
    """Finds models in buckets. Implements `Finder`."""

    clients: KeptClients
    means: Means
    unpacker: Unpacker
    endpoints: Endpoints
    surveys: EndpointQueues
    """For searches that no load waits for."""
    jitter: Callable[[], float]

    async def find(self, config: StorageConfig, search: Search) -> RemoteModel | PackedModel:
        """As `Finder`."""
        with search.waits.on(f"a client for {config.label}"):
            bare = await self.clients.bucket(config)
        queues = self.surveys if search.is_survey else self.means.asks
        async with queues.turn(bare.endpoint, search.waits):
            return await self._found(bare, config, search)

    async def _found(self, bare: Bucket, config: StorageConfig, search: Search) -> RemoteModel | PackedModel:
        def bucket_for(waits: Waits) -> Bucket:
            if search.is_survey:  # it has no time for a second try
                return bare
            return RetriedBucket(bare, waits, known=self.endpoints, reader=search.origin, jitter=self.jitter)

        found = await find_model(bucket_for(search.waits), search, self.means.files)
        remote = RemoteModel(found, means=self.means, search=search, bucket_for=bucket_for)
        if config.fields.flag("unpack", default=False) and found.single is not None and is_archive(found.listing.name):
            packed = await self.means.files.run(lambda _: PackedModel(remote, self.unpacker))
            await search.tell(packed)
            return packed
        if search.is_survey:
            await search.tell(remote)
        else:
            await remote.read_ahead(search.wanted)
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
