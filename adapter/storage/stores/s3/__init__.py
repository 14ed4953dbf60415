"""Amazon S3 and everything that speaks like it (`type: s3`)."""

from __future__ import annotations

from adapter.storage.stores.clients import BucketStore, late
from adapter.storage.stores.s3.config import BINDING, connection_of

STORE = BucketStore(BINDING, connection_of, late("adapter.storage.stores.s3.client", "S3Client"))
