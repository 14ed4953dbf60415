"""Google Cloud Storage (`type: gcs`). Its libraries are imported with the first client: they are an extra."""

from __future__ import annotations

from adapter.storage.stores.clients import BucketStore, extra
from adapter.storage.stores.gcs.config import BINDING, connection_of

STORE = BucketStore(BINDING, connection_of, extra("gcs", f"{__name__}.client", "GcsClient"))
