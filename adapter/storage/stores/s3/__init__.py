"""S3 and what speaks its language (`type: s3`)."""

from __future__ import annotations

from typing import Any

from adapter.storage.stores.clients import BucketStore, Client, Means
from adapter.storage.stores.s3.config import BINDING, connection_of


def _client(connection: Any, means: Means) -> Client:
    from adapter.storage.stores.s3.client import S3Client  # noqa: PLC0415 - botocore takes 0.1 s to import

    return S3Client(connection, means)


STORE = BucketStore(BINDING, connection_of, _client)
"""Buckets of S3."""
