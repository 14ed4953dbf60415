"""
From a storage config to the bucket it names: one row per type of store.

Keeps the clients of the connections used last: making one costs 0.1 s, a connection and a TLS
handshake. Blocks; used from many threads at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from adapter.errors import InvalidRequest
from adapter.storage.connection import S3Connection, connection_of
from adapter.storage.credentials import StorageConfig
from adapter.storage.s3 import S3Client
from adapter.storage.source import ObjectSource

SUPPORTED = ("s3",)
_KEPT_CLIENTS = 32


class Sources:
    """All stores that this process talks to."""

    def __init__(self, max_connections: int) -> None:
        """
        Args:
            max_connections: threads that may use one client at once.
        """
        self._max_connections = max_connections
        self._clients: OrderedDict[S3Connection, S3Client] = OrderedDict()
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
        client = self._client(config)
        if not config.bucket:
            raise InvalidRequest(f"no bucket: {config.label} has neither bucket nor default_bucket, and the request names none")
        return client.bucket(config.bucket, label=config.label, is_unsigned=config.is_unsigned)

    def _client(self, config: StorageConfig) -> S3Client:
        if config.type not in SUPPORTED:
            raise InvalidRequest(f"storage type {config.type!r} is not supported yet; supported: {', '.join(SUPPORTED)}")
        connection = connection_of(config.values, config.label)
        with self._lock:
            if connection in self._clients:
                self._clients.move_to_end(connection)
                return self._clients[connection]
        made = S3Client(connection, self._max_connections)  # outside of the lock: the credential chain may ask the network
        with self._lock:
            client = self._clients.setdefault(connection, made)
            while len(self._clients) > _KEPT_CLIENTS:
                self._clients.popitem(last=False)
        return client
