"""An unsigned request that is refused says why it was not signed."""

from __future__ import annotations

from adapter.storage.net.messages import Head
from adapter.storage.secret.merging import StorageConfig
from adapter.storage.stores.answers import Where


def test_an_unsigned_request_says_why():
    """Credentials stay with their endpoint, and the person who wonders is told."""
    config = StorageConfig(type="s3", bucket="b", values={}, label="storage config 'k'", is_unsigned=True)
    where = Where("bucket 'b' at h", config, "https://h", "the key")
    words = "without credentials: the credentials of storage config 'k' do not belong to the place that storage_params names"
    assert f"denied access {words}" in where.refused(Head(403)).text
