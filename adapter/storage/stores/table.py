"""Every type of store of objects, one module each. A store without buckets has a finder of its own in `Store`."""

from __future__ import annotations

from adapter.storage.stores import azure, gcs, http, s3
from adapter.storage.stores.clients import BucketStore

BUCKETS: dict[str, BucketStore] = {"s3": s3, "http": http, "gcs": gcs, "azure": azure}
BINDINGS = {name: store.BINDING for name, store in BUCKETS.items()}
