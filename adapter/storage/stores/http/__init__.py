"""Files on a web server (`type: http`)."""

from __future__ import annotations

from adapter.storage.stores.clients import BucketStore, late
from adapter.storage.stores.http.config import BINDING, connection_of

STORE = BucketStore(BINDING, connection_of, late("adapter.storage.stores.http.client", "HttpClient"), has_versions_of_config=True)
"""Headers (`Host` above all) and the query choose a file, and versions are of one file. Source: RFC 9110, 8.8.3 and 12.5."""
