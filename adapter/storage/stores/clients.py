"""
Clients of stores, one for each connection, made when they are needed and kept: the last ones used.

A client holds what is slow to learn: credentials that end, and where a bucket is. Connections are the engine's. Knows no store: the
table hands in its rows.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from adapter.storage.bucket import Bucket
from adapter.storage.net.access import FREE, Guard
from adapter.storage.net.engine import Engine
from adapter.storage.secret.merging import Binding, StorageConfig
from adapter.storage.stores.connection import Connection
from adapter.workers import Workers

KEPT_CLIENTS = 32


class Client(Protocol):
    """A connection to a store."""

    def bucket(self, config: StorageConfig) -> Bucket:
        """The bucket of a config of this connection. Raises InvalidRequest."""
        ...


@dataclass(frozen=True, kw_only=True)
class Means:
    """What every client is made with, whatever its connection."""

    engine: Engine
    blocking: Workers
    """Threads for what blocks on this machine: files of the secret, and where botocore says that a bucket is."""
    asking: Workers
    """Threads for libraries that wait for those who give out credentials."""
    guard: Guard = FREE
    """Of endpoints that only a request names."""

    def guard_of(self, connection: Connection) -> Guard:
        """Of the addresses of this connection."""
        return self.guard if connection.is_requested else FREE


@dataclass(frozen=True)
class BucketStore:
    """A type of store that keeps buckets: a row of the table."""

    binding: Binding
    connection: Callable[[StorageConfig], Connection]
    """
    Reads what a client is made from; two equal connections share a client. Blocks. Raises InvalidRequest.

    The field `anonymous` must be honoured: a request that leads away from the stored place has it set, so that neither
    stored credentials nor the pod's own identity go there.
    """
    client: Callable[[Any, Means], Client]
    """Makes it, in a thread and without asking the network: it may import the library of a vendor. Raises InvalidRequest."""


class Clients:
    """All connections to stores that this process keeps."""

    def __init__(self, stores: Mapping[str, BucketStore], means: Means) -> None:
        """`stores` has the rows by type."""
        self._stores = stores
        self._means = means
        self._kept: OrderedDict[tuple[str, Connection], Client] = OrderedDict()

    async def warm(self, config: StorageConfig) -> None:
        """Make its client, without asking the network. Raises InvalidRequest."""
        await self.bucket(config)

    async def bucket(self, config: StorageConfig) -> Bucket:
        """The bucket of this config. Raises InvalidRequest."""
        store = self._stores[config.type]
        connection = await self._means.blocking.run(lambda _: store.connection(config))
        key = (config.type, connection)
        if key not in self._kept:
            made = await self._means.blocking.run(lambda _: store.client(connection, self._means))
            self._kept.setdefault(key, made)  # another load may have made it meanwhile
            if len(self._kept) > KEPT_CLIENTS:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        return self._kept[key].bucket(config)
