"""A client that cannot be made says why."""

from __future__ import annotations

import sys

import pytest

from adapter.errors import InvalidRequest
from tests.real.blocking import BlockingClients
from tests.unit.storage.rigs import make_config


def test_a_missing_extra_is_named(monkeypatch):
    """An image for S3 alone has no library of Google's."""
    monkeypatch.delitem(sys.modules, "adapter.storage.stores.gcs.identity", raising=False)
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(InvalidRequest, match=r"^storage type 'gcs' needs pip install modelmesh-triton-adapter\[gcs\]$"):
        BlockingClients().bucket(make_config({"type": "gcs", "bucket": "b", "anonymous": "true"}))
