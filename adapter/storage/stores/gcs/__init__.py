"""Google Cloud Storage (`type: gcs`)."""

from __future__ import annotations

from typing import Any

from adapter.errors import InvalidRequest
from adapter.storage.stores.clients import BucketStore, Client, Means
from adapter.storage.stores.gcs.config import BINDING, connection_of


def _client(connection: Any, means: Means) -> Client:
    try:
        from adapter.storage.stores.gcs.client import GcsClient  # noqa: PLC0415 - google-auth takes 0.1 s to import
    except ImportError as error:
        raise InvalidRequest("storage type 'gcs' needs pip install modelmesh-triton-adapter[gcs]") from error

    return GcsClient(connection, means)


STORE = BucketStore(BINDING, connection_of, _client)
"""Buckets of Google Cloud Storage."""
