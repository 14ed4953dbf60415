"""Every request that reaches a server is one that we asked for, in our thread; a closed client leaves no thread and no connection."""

from __future__ import annotations

import contextlib
import http.client
import threading
import time
from urllib.parse import urlsplit

import pytest

from adapter.errors import AdapterError
from adapter.storage.stores.clients import Clients, Means
from adapter.storage.stores.table import BUCKETS
from adapter.storage.wire.cutting import CuttableConnection
from adapter.workers import Stop
from tests.fakes.s3_proxy import Fault
from tests.unit.storage.beds import make_config

END_SECONDS = 10


@pytest.fixture
def senders(spoiled, monkeypatch):
    """The thread of each request to the server, in order. Libraries send through the standard library, and we ourselves for files."""
    seen, port = [], urlsplit(spoiled.proxy.endpoint_url).port

    def watch(owner, name):
        original = getattr(owner, name)

        def watched(self, *arguments, **options):
            if self.port == port:
                seen.append(threading.current_thread())
            return original(self, *arguments, **options)

        monkeypatch.setattr(owner, name, watched)

    watch(http.client.HTTPConnection, "putrequest")
    watch(CuttableConnection, "get")
    return seen


def test_every_request_is_one_that_we_asked_for(spoiled, senders):
    """A listing, a range, the whole, something that is not there, a refusal: one request each."""
    before = set(threading.enumerate())
    clients = Clients(BUCKETS, Means(max_connections=4))
    bucket = clients.bucket(make_config(spoiled.config), Stop())
    spoiled.proxy.requests.clear()
    stored = bucket.list_page("m/file", Stop()).objects[0]
    bucket.read(stored, 5, 10, bytearray().extend, Stop())
    bucket.read(stored, 0, stored.size_bytes, bytearray().extend, Stop())
    bucket.list_page("absent", Stop())
    for status in (404, 403):
        spoiled.proxy.next(Fault(status=status, body=b""))
        with contextlib.suppress(AdapterError):
            bucket.list_page("m/file", Stop())
    clients.close()
    until = time.monotonic() + END_SECONDS
    while (left := set(threading.enumerate()) - before) and time.monotonic() < until:  # those of the proxy end with their connections
        time.sleep(0.01)
    assert not left
    assert len(spoiled.proxy.requests) == 6, spoiled.proxy.requests
    assert set(senders) == {threading.current_thread()} and len(senders) == 6


def test_closing_cuts_no_call_under_way(spoiled):
    """A client that is evicted may be in use: its read ends well, and it can even be asked again."""
    clients = Clients(BUCKETS, Means(max_connections=4))
    bucket = clients.bucket(make_config(spoiled.config), Stop())
    stored, got = bucket.list_page("m/file", Stop()).objects[0], bytearray()

    def sink(chunk: bytes) -> None:
        clients.close()
        got.extend(chunk)

    bucket.read(stored, 0, stored.size_bytes, sink, Stop())
    assert bytes(got) == spoiled.content
    got.clear()
    bucket.read(stored, 0, stored.size_bytes, got.extend, Stop())
    assert bytes(got) == spoiled.content
    assert bucket.list_page("m/file", Stop()).objects == (stored,)
