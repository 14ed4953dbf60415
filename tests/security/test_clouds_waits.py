"""Every wait has an end of its own, and ends within three seconds of a stop, in every phase and for tokens too."""

from __future__ import annotations

import time

import pytest

from adapter.errors import SourceUnavailable
from adapter.workers import Stopped
from tests.fakes.hell import BlackHole, Hell, silent, stalled_body
from tests.real.blocking import ended
from tests.security.clouds import CONTENT, bucket_of, cloud, listed, read

PROMPT_SECONDS = 3
pytestmark = pytest.mark.usefixtures("no_identity")


@pytest.fixture
def short_times(monkeypatch):
    """One second for a connection, and one for an answer."""
    for name in ("CONNECT_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(f"adapter.storage.net.transfer.{name}", 1)


def refused(words, call, kind, url):
    begun = time.monotonic()
    with pytest.raises(SourceUnavailable, match=words):
        call(bucket_of(kind, url))
    assert time.monotonic() - begun < 8


@pytest.mark.parametrize("where", ["silent", "dial", "refused"])
def test_a_stop_wakes_the_search_for_the_pods_identity(where, monkeypatch):
    """In a thread of a load; between looks too."""
    with BlackHole() as hole, Hell(silent()) as metadata:
        port = {"silent": metadata.port, "dial": hole.port, "refused": 1}[where]
        monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{port}")
        monkeypatch.setattr("google.auth.compute_engine._metadata.ping.__defaults__", (3, 3))
        is_waiting = metadata.hanging.wait if where == "silent" else lambda _: True
        error, seconds = ended(lambda stop: listed(bucket_of("gcs", "", anonymous=""), stop), is_waiting)
    assert type(error) is Stopped
    assert seconds < PROMPT_SECONDS


@pytest.mark.parametrize("kind", ["gcs", "azure"])
@pytest.mark.parametrize("call", [listed, read])
def test_a_body_that_stops_is_left_after_the_read_timeout(kind, call, short_times):
    versions = {"x-goog-generation": "7", "ETag": '"0x8D4BCC2E4835CD0"', "Content-Range": f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"}
    reading = stalled_body(len(CONTENT), 1000, 206, versions)
    with Hell(cloud(kind, listing=stalled_body(1000, 10), reading=reading)) as server:
        refused("no answer within", call, kind, server.url)


@pytest.mark.parametrize("kind", ["gcs", "azure"])
def test_a_server_that_is_never_reached_is_left_after_the_connect_timeout(kind, short_times):
    """And is said to be."""
    with BlackHole() as hole:
        refused("no connection within", listed, kind, f"http://127.0.0.1:{hole.port}")
