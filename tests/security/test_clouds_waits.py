"""GCS and Azure: every wait has an end of its own, and ends within three seconds of a stop, in every phase and for tokens too."""

from __future__ import annotations

import time

import pytest

from adapter.errors import SourceUnavailable
from adapter.workers import Stopped
from tests.fakes.hell import BlackHole, Hell, silent, stalled_body
from tests.fakes.http_proxy import VARIABLES
from tests.real.blocking import ended
from tests.security.clouds import CONTENT, NO_IDENTITY, VERSIONS, bucket_of, cloud, listed, read, values

KINDS = ("gcs", "azure")
PROMPT_SECONDS = 3
STALLED = 206, {"Content-Range": f"bytes 0-{len(CONTENT) - 1}/{len(CONTENT)}"}


@pytest.fixture(autouse=True)
def no_identity(monkeypatch):
    """Neither of the machine that runs the tests, nor its proxies."""
    for name in (*NO_IDENTITY, *VARIABLES, "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)


def short_times(monkeypatch):
    """One second for a connection, and one for an answer."""
    for name in ("CONNECT_SECONDS", "ANSWER_SECONDS"):
        monkeypatch.setattr(f"adapter.storage.net.transfer.{name}", 1)


def assert_prompt(work, is_waiting):
    error, seconds = ended(work, is_waiting)
    assert type(error) is Stopped
    assert seconds < PROMPT_SECONDS


def stalled(kind, call):
    """An answer that stops in its body."""
    return stalled_body(len(CONTENT), 1000, 206, {**VERSIONS[kind], **STALLED[1]}) if call is read else stalled_body(1000, 10)


@pytest.mark.parametrize("where", ["silent", "dial", "refused"])
def test_a_stop_wakes_the_search_for_the_pods_identity(where, monkeypatch):
    """In a thread of a load; between looks too."""
    with BlackHole() as hole, Hell(silent()) as metadata:
        port = {"silent": metadata.port, "dial": hole.port, "refused": 1}[where]
        monkeypatch.setenv("GCE_METADATA_IP", f"127.0.0.1:{port}")
        monkeypatch.setattr("adapter.storage.stores.gcs.identity._SEARCH_PAUSES_SECONDS", (0.0, 60.0))
        is_waiting = metadata.hanging.wait if where == "silent" else lambda _: True
        assert_prompt(lambda stop: listed(bucket_of({"type": "gcs", "bucket": "b"}), stop), is_waiting)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("call", [listed, read])
def test_a_body_that_stops_is_left_after_the_read_timeout(kind, call, monkeypatch):
    short_times(monkeypatch)
    with Hell(cloud(kind, listing=stalled(kind, call), reading=stalled(kind, call))) as server:
        bucket, begun = bucket_of(values(kind, server.url)), time.monotonic()
        with pytest.raises(SourceUnavailable, match="no answer within"):
            call(bucket)
        assert time.monotonic() - begun < 8


@pytest.mark.parametrize("kind", KINDS)
def test_a_server_that_is_never_reached_is_left_after_the_connect_timeout(kind, monkeypatch):
    """And is said to be."""
    short_times(monkeypatch)
    with BlackHole() as hole:
        bucket, begun = bucket_of(values(kind, f"http://127.0.0.1:{hole.port}")), time.monotonic()
        with pytest.raises(SourceUnavailable, match="no connection within"):
            listed(bucket)
        assert time.monotonic() - begun < 8
