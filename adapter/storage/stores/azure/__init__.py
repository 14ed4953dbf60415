"""Azure Blob Storage (`type: azure`)."""

from __future__ import annotations

from adapter.storage.stores.azure.client import AzureClient
from adapter.storage.stores.azure.config import BINDING, connection_of
from adapter.storage.stores.clients import BucketStore

STORE = BucketStore(BINDING, connection_of, AzureClient)
"""Containers of Azure Blob Storage."""
