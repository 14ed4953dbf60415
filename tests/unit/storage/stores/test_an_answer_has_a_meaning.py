"""An unsigned request that is refused says why it was not signed."""

from __future__ import annotations

from adapter.storage.net.messages import Head
from adapter.storage.stores.answers import Where


def test_an_unsigned_request_says_why():
    """Credentials stay with their endpoint, and the person who wonders is told."""
    where = Where(words="bucket 'b' at h", label="storage config 'k'", credentials="the key", is_plain_http=False, is_unsigned=True)
    words = "without credentials: the credentials of storage config 'k' do not belong to the place that storage_params names"
    assert f"denied access {words}" in where.refused(Head(403)).text
