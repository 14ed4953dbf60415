"""Azure Blob Storage (`type: azure`). Its libraries are imported with the first client: they are an extra."""

from __future__ import annotations

from adapter.storage.stores.azure.config import BINDING, connection_of
from adapter.storage.stores.clients import BucketStore, extra

STORE = BucketStore(BINDING, connection_of, extra("azure", f"{__name__}.client", "AzureClient"))
