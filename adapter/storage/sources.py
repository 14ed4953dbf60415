"""
From a storage config to the bucket it names: one row per type of store.

Keeps the clients of the connections used last: making one costs 0.1 s, a connection and a TLS
handshake. Blocks; used from many threads at once.
"""

from __future__ import annotations

import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from adapter.errors import InvalidRequest
from adapter.storage.cloud_connections import azure_connection_of, gcs_connection_of
from adapter.storage.connection import connection_of
from adapter.storage.credentials import StorageConfig
from adapter.storage.http import HttpClient
from adapter.storage.http_connection import http_connection_of
from adapter.storage.s3 import S3Client
from adapter.storage.source import ObjectSource

_KEPT_CLIENTS = 32


class StoreClient(Protocol):
    """A connection to a store, ready to be used by any number of threads."""

    def source(self, config: StorageConfig) -> ObjectSource:
        """The bucket of a config of this connection. Raises InvalidRequest."""
        ...


@dataclass(frozen=True)
class StoreType:
    """How a type of store is reached."""

    connection: Callable[[StorageConfig], Hashable]
    """Reads what a client is made from; two equal connections share a client. Raises InvalidRequest."""
    client: Callable[[Any, int], StoreClient]
    """Makes it, for so many threads. May block: credential chains ask the network. Raises InvalidRequest, SourceDenied."""


def _optional(name: str, client: str) -> Callable[[Any, int], StoreClient]:
    """A client whose libraries are installed on demand only."""

    def make(connection: Any, max_connections: int) -> StoreClient:
        try:
            module = importlib.import_module(f"adapter.storage.{name}")
        except ModuleNotFoundError as error:
            raise InvalidRequest(f"storage type {name!r} needs pip install modelmesh-triton-adapter[{name}]") from error
        made: StoreClient = getattr(module, client)(connection, max_connections)
        return made

    return make


TYPES: Mapping[str, StoreType] = {
    "s3": StoreType(lambda config: connection_of(config.values, config.label), S3Client),
    "http": StoreType(http_connection_of, HttpClient),
    "gcs": StoreType(gcs_connection_of, _optional("gcs", "GcsClient")),
    "azure": StoreType(azure_connection_of, _optional("azure", "AzureClient")),
}
SUPPORTED = (*TYPES, "pvc")


class Sources:
    """All stores that this process talks to."""

    def __init__(self, max_connections: int) -> None:
        """
        Args:
            max_connections: threads that may use one client at once.
        """
        self._max_connections = max_connections
        self._clients: OrderedDict[tuple[str, Hashable], StoreClient] = OrderedDict()
        self._lock = threading.Lock()

    def warm(self, config: StorageConfig) -> None:
        """
        Make what the config needs, and keep it.

        Raises:
            InvalidRequest: the config cannot work, or its type is not supported.
        """
        self._client(config)

    def source(self, config: StorageConfig) -> ObjectSource:
        """
        The bucket of this config.

        Raises:
            InvalidRequest: the config cannot work, its type is not supported, or it has no bucket.
        """
        return self._client(config).source(config)

    def _client(self, config: StorageConfig) -> StoreClient:
        if config.type not in TYPES:
            raise InvalidRequest(f"storage type {config.type!r} is not supported; supported: {', '.join(SUPPORTED)}")
        type_ = TYPES[config.type]
        connection = type_.connection(config)
        key = (config.type, connection)
        with self._lock:
            if key in self._clients:
                self._clients.move_to_end(key)
                return self._clients[key]
        made = type_.client(connection, self._max_connections)  # outside of the lock: a credential chain may ask the network
        with self._lock:
            client = self._clients.setdefault(key, made)
            while len(self._clients) > _KEPT_CLIENTS:
                self._clients.popitem(last=False)
        return client
