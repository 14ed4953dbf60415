"""Web servers (`type: http`)."""

from __future__ import annotations

from adapter.storage.stores.clients import BucketStore
from adapter.storage.stores.http.client import HttpClient
from adapter.storage.stores.http.config import BINDING, connection_of

STORE = BucketStore(BINDING, connection_of, HttpClient)
"""Files of web servers."""
