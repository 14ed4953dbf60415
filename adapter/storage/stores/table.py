"""
Every type of store: one row each.

A store of objects is a folder here, with its `STORE`, and a row in `BUCKETS`; a store without buckets has
a finder of its own in `Store`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from adapter.storage.bucket import Bucket
from adapter.storage.pull.archives import is_archive
from adapter.storage.pull.listing import find_model
from adapter.storage.pull.remote import Means, PackedModel, RemoteModel
from adapter.storage.queues import EndpointQueues
from adapter.storage.search import Search
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
    endpoints: Endpoints
    surveys: EndpointQueues
    """For searches that no load waits for."""
    jitter: Callable[[], float]

    async def find(self, config: StorageConfig, search: Search) -> RemoteModel:
        """As `Finder`."""
        with search.waits.on(f"a client for {config.label}"):
            bare = await self.clients.bucket(config)

        def bucket_for(waits: Waits) -> Bucket:
            if search.is_survey:  # it has no time for a second try
                return bare
            return RetriedBucket(bare, waits, known=self.endpoints, reader=search.origin, jitter=self.jitter)

        queues = self.surveys if search.is_survey else self.means.asks
        async with queues.turn(bare.endpoint, search.waits):
            found = await find_model(bucket_for(search.waits), search, self.means.files)
            if config.fields.flag("unpack", default=False) and found.single is not None and is_archive(found.listing.name):
                packed = await self.means.files.run(lambda _: PackedModel(found, means=self.means, search=search, bucket_for=bucket_for))
                if packed.is_known:
                    await search.tell(packed)
                return packed
            remote = RemoteModel(found, means=self.means, search=search, bucket_for=bucket_for)
            await search.tell(remote)
            return remote
