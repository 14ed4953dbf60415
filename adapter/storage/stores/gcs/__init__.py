"""
Google Cloud Storage (`type: gcs`). Its libraries are imported with the first client: they are an extra.

`google-cloud-storage` asks for the metadata of a bucket at the first call, in a thread of its own, for
traces that nobody collects: a request outside of our bounds, with our credentials. A variable of the
environment is the only switch, and the library reads the variable at each call. The variable is set
here and not beside the client, whose import comes when threads run: C libraries read the environment too.
"""

from __future__ import annotations

import os

from adapter.storage.stores.clients import BucketStore, extra
from adapter.storage.stores.gcs.config import BINDING, connection_of

os.environ["DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA"] = "true"  # noqa: TID251 - written, not read
STORE = BucketStore(BINDING, connection_of, extra("gcs", f"{__name__}.client", "GcsClient"))
