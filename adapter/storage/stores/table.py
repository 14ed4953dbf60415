"""Every type of store of objects, one row each. A store without buckets has a finder of its own in `Store`."""

from __future__ import annotations

from adapter.storage.stores import azure, gcs, http, s3
from adapter.storage.stores.clients import BucketStore

BUCKETS = {
    "s3": BucketStore(s3.BINDING, s3.connection_of, s3.client_of),
    "http": BucketStore(http.BINDING, http.connection_of, http.client_of),
    "gcs": BucketStore(gcs.BINDING, gcs.connection_of, gcs.client_of),
    "azure": BucketStore(azure.BINDING, azure.connection_of, azure.client_of),
}
BINDINGS = {name: store.binding for name, store in BUCKETS.items()}
