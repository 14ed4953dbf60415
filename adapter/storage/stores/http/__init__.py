"""Web servers (`type: http`)."""

from __future__ import annotations

from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.clients import BucketStore, Means
from adapter.storage.stores.http.client import HttpBucket
from adapter.storage.stores.http.config import BINDING, HttpConnection, connection_of


class _HttpClient:
    """As `Client`."""

    def __init__(self, connection: HttpConnection, means: Means) -> None:
        self._connection = connection
        self._means = means

    def bucket(self, config: StorageConfig) -> HttpBucket:
        """As `Client`."""
        return HttpBucket(config, self._connection, self._means.engine, self._means.guard)


STORE = BucketStore(BINDING, connection_of, _HttpClient)
