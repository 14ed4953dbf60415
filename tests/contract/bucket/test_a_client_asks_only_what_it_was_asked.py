"""Every request that reaches a server is one that we asked for."""

from __future__ import annotations

import contextlib

from adapter.errors import AdapterError
from adapter.workers import Stop
from tests.fakes.s3_proxy import Fault
from tests.real.blocking import BlockingClients
from tests.unit.storage.rigs import make_config


def test_every_request_is_one_that_we_asked_for(spoiled):
    """A listing, a range, the whole, something that is not there, a refusal: one request each."""
    bucket = BlockingClients().bucket(make_config(spoiled.config))
    spoiled.proxy.requests.clear()
    stored = bucket.list_page("m/file", Stop()).objects[0]
    bucket.read(stored, 5, 10, bytearray().extend, Stop())
    bucket.read(stored, 0, stored.size_bytes, bytearray().extend, Stop())
    bucket.list_page("absent", Stop())
    for status in (404, 403):
        spoiled.proxy.next(Fault(status=status, body=b""))
        with contextlib.suppress(AdapterError):
            bucket.list_page("m/file", Stop())
    assert len(spoiled.proxy.requests) == 6, spoiled.proxy.requests
