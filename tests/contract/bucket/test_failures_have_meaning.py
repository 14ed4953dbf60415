"""Every kind of store behind a proxy that spoils answers: each failure becomes the right class, in safe words."""

from __future__ import annotations

import pytest

from adapter.errors import InvalidRequest, SourceChanged, SourceDenied, SourceUnavailable
from adapter.workers import Stop
from tests.fakes.s3_proxy import Fault

STATUSES = [
    *((status, SourceDenied) for status in (401, 403)),
    *((status, SourceUnavailable) for status in (408, 429, 500, 502, 503)),
    *((status, InvalidRequest) for status in (400, 405)),
]


@pytest.mark.parametrize(("status", "expected"), STATUSES)
@pytest.mark.parametrize("call", ["list", "read"])
def test_a_status_has_a_meaning(spoiled, status, expected, call):
    """Asked once; the place and the status are named, the server's own words are not."""
    stored = spoiled.listed()
    spoiled.proxy.requests.clear()
    spoiled.proxy.next(Fault(status=status, body=b"the server's secret words"))
    with pytest.raises(expected) as caught:
        spoiled.call(call, stored)
    assert type(caught.value) is expected
    assert len(spoiled.proxy.requests) == 1
    assert f"HTTP {status}" in caught.value.text and spoiled.proxy.endpoint_url.removeprefix("http://") in caught.value.text
    assert "secret" not in caught.value.text


@pytest.mark.parametrize(("status", "words"), [(404, "has gone"), (412, "was replaced"), (416, "was replaced")])
def test_a_listed_object_that_is_refused_for_its_version_was_changed(spoiled, status, words):
    """The load lists again."""
    stored = spoiled.listed()
    spoiled.proxy.next(Fault(status=status, body=b""))
    with pytest.raises(SourceChanged, match=f"'m/file' {words} after the listing .*HTTP {status}"):
        spoiled.read(stored, 5, 10)


AWAY = [("127.0.0.1:1", "the connection was refused"), ("name.invalid", "its name cannot be resolved")]


@pytest.mark.parametrize(("server", "words"), AWAY)
def test_a_store_that_is_away_is_unavailable(spoiled, server, words):
    """Refused, or without a name; said in words, with the place."""
    place = "url" if spoiled.bucket.kind == "http" else "endpoint_url"
    with pytest.raises(SourceUnavailable, match=f"{server}.* cannot be reached: {words}"):
        spoiled.through_proxy(**{place: f"http://{server}/x", "anonymous": "true"}).list_page("m/file", Stop())


def test_a_server_that_ignores_the_range_gives_no_byte(spoiled):
    """Bytes of its answer would be written to the wrong place."""
    if spoiled.bucket.kind in ("s3", "http"):
        pytest.skip("there the header of the answer decides")
    stored, got = spoiled.listed(), bytearray()
    spoiled.proxy.next(Fault(status=200, body=spoiled.content))
    with pytest.raises(SourceUnavailable):
        spoiled.bucket.read(stored, 5, 10, got.extend, Stop())
    assert not got
