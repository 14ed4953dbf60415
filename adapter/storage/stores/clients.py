"""
Clients of stores, made when they are needed and kept: making one costs 0.1 s, a connection and a TLS handshake.

The clients that were used last are kept. An evicted client is closed, which ends idle connections only: calls
under way go on, and the bucket can be asked again. Blocks; used from many threads at once. Knows no store: the table hands in its rows.
"""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from adapter.errors import InvalidRequest
from adapter.storage.bucket import Bucket
from adapter.storage.secret.binding import Binding
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.wire.dialling import FREE, Guard
from adapter.workers import Stop

KEPT_CLIENTS = 32


class Client(Protocol):
    """A connection to a store, ready to be used by any number of threads. Has no threads of its own."""

    def bucket(self, config: StorageConfig) -> Bucket:
        """The bucket of a config of this connection. Raises InvalidRequest."""
        ...

    def close(self) -> None:
        """Close idle connections. Calls under way go on."""
        ...


@dataclass(frozen=True, kw_only=True)
class Means:
    """What every client is made with, whatever its connection."""

    max_connections: int
    """Threads that may use one client at once."""
    guard: Guard = FREE
    """Of endpoints that only a request names."""


@dataclass(frozen=True)
class BucketStore:
    """A type of store that keeps buckets: a row of the table."""

    binding: Binding
    connection: Callable[[StorageConfig], Hashable]
    """
    Reads what a client is made from; two equal connections share a client. Raises InvalidRequest.

    The field `anonymous` must be honoured: a request that leads away from the stored place has it set, so that neither
    stored credentials nor the pod's own identity go there.
    """
    client: Callable[[Any, Means, Stop], Client]
    """Makes it. May block, until the stop: credential chains ask the network. Raises InvalidRequest, SourceDenied, SourceUnavailable."""
    has_versions_of_config: bool = False
    """Whether an object's version means nothing to another config, because more of the config than the place tells which object it is."""


def late(module: str, client: str) -> Callable[[Any, Means, Stop], Client]:
    """The client of a store whose libraries are slow to import: the first client imports them."""

    def make(connection: Any, means: Means, stop: Stop) -> Client:
        made: Client = getattr(importlib.import_module(module), client)(connection, means, stop)
        return made

    return make


def extra(name: str, module: str, client: str) -> Callable[[Any, Means, Stop], Client]:
    """As `late`, where the libraries are installed on demand only."""
    made = late(module, client)

    def make(connection: Any, means: Means, stop: Stop) -> Client:
        try:
            importlib.import_module(module)
        except ModuleNotFoundError as error:
            raise InvalidRequest(f"storage type {name!r} needs pip install modelmesh-triton-adapter[{name}]") from error
        return made(connection, means, stop)

    return make


class Clients:
    """All connections to stores that this process keeps."""

    def __init__(self, stores: Mapping[str, BucketStore], means: Means) -> None:
        """`stores` has the rows by type."""
        self._stores = stores
        self._means = means
        self._kept: OrderedDict[tuple[str, Hashable], Client] = OrderedDict()
        self._lock = threading.Lock()

    def warm(self, config: StorageConfig, stop: Stop) -> None:
        """Make what the config needs, and keep it. Raises as `bucket`."""
        self._client(config, stop)

    def bucket(self, config: StorageConfig, stop: Stop) -> Bucket:
        """The bucket of this config. Raises as the store's `client`, and InvalidRequest: the config names no bucket."""
        return self._client(config, stop).bucket(config)

    def close(self) -> None:
        """Close all of them."""
        with self._lock:
            clients = list(self._kept.values())
            self._kept.clear()
        for client in clients:
            client.close()

    def _client(self, config: StorageConfig, stop: Stop) -> Client:
        store = self._stores[config.type]
        connection = store.connection(config)
        key = (config.type, connection)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        made = store.client(connection, self._means, stop)  # outside of the lock: a credential chain may ask the network
        with self._lock:
            client = self._kept.setdefault(key, made)
            superfluous = [] if client is made else [made]
            while len(self._kept) > KEPT_CLIENTS:
                superfluous.append(self._kept.popitem(last=False)[1])
        for each in superfluous:
            each.close()
        return client
