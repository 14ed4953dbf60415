"""Every kind of store behind a proxy that spoils answers: each failure becomes the right class, in safe words."""

from __future__ import annotations

import threading
import time

import pytest

from adapter.errors import InvalidRequest, SourceChanged, SourceDenied, SourceUnavailable
from adapter.storage.bucket import StoredObject
from adapter.workers import Stop, Stopped
from tests.fakes.s3_proxy import Fault

PROMPT_SECONDS = 3
"""Far below the read timeout of 10 s."""

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


def test_one_failure_does_not_poison_the_next_call(spoiled):
    """The Go adapter kept the first error of a GCS client for ever."""
    stored = spoiled.listed()
    spoiled.proxy.next(Fault(status=403, body=b""), times=2)
    for _ in range(2):
        with pytest.raises(SourceDenied):
            spoiled.read(stored)
    assert spoiled.read(stored) == spoiled.content


EARLY = [Fault(cut_after_bytes=100_000), Fault(reset_after_bytes=100_000), Fault(reset_after_bytes=-1)]


@pytest.mark.parametrize("fault", EARLY, ids=["truncated", "reset in the body", "reset before the headers"])
def test_a_body_that_ends_early_is_unavailable_and_what_came_is_right(spoiled, fault):
    """Nothing wrong reaches the sink, and what came need not be read again."""
    stored = spoiled.listed()
    spoiled.proxy.next(fault, times=3)  # Azure's library asks three times by itself
    got = bytearray()
    with pytest.raises(SourceUnavailable):
        spoiled.bucket.read(stored, 0, stored.size_bytes, got.extend, Stop())
    assert bytes(got) == spoiled.content[: len(got)]
    assert len(got) <= 100_000


@pytest.mark.parametrize(("call", "after_bytes"), [("read", -1), ("read", 0), ("read", 100_000), ("list", -1), ("list", 0)])
def test_a_stop_wakes_a_call_that_hangs(spoiled, call, after_bytes):
    """Before the headers, after them, and in the body: the socket is cut, the thread ends, and the client works on."""
    if spoiled.bucket.kind == "http" and (call, after_bytes) == ("list", 0):
        pytest.skip("the headers of a web server are all that a listing needs")
    stored = spoiled.listed()
    spoiled.proxy.next(Fault(hang_after_bytes=after_bytes))
    stop, ended = Stop(), []

    def work() -> None:
        try:
            spoiled.call(call, stored, stop)
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert spoiled.proxy.hanging.wait(20)
    begun = time.monotonic()
    stop.set()
    thread.join(10)
    assert time.monotonic() - begun < PROMPT_SECONDS
    assert type(ended[0]) is Stopped
    assert spoiled.read(stored) == spoiled.content


AWAY = [("127.0.0.1:1", "the connection was refused"), ("name.invalid", "its name cannot be resolved")]


@pytest.mark.parametrize(("server", "words"), AWAY)
def test_a_store_that_is_away_is_unavailable(spoiled, server, words):
    """Refused, or without a name; said in words, with the place."""
    place = "url" if spoiled.bucket.kind == "http" else "endpoint_url"
    with pytest.raises(SourceUnavailable, match=f"{server}.* cannot be reached: {words}"):
        spoiled.through_proxy(**{place: f"http://{server}/x", "anonymous": "true"}).list_page("m/file", Stop())


def test_a_request_of_nothing_asks_nothing(spoiled):
    """There are no empty ranges."""
    spoiled.bucket.read(StoredObject("m/empty", 0, "1"), 0, 0, bytearray().extend, Stop())
    assert spoiled.proxy.requests == []


def test_a_server_that_ignores_the_range_gives_no_byte(spoiled):
    """Bytes of its answer would be written to the wrong place."""
    if spoiled.bucket.kind in ("s3", "http"):
        pytest.skip("there the header of the answer decides")
    stored, got = spoiled.listed(), bytearray()
    spoiled.proxy.next(Fault(status=200, body=spoiled.content))
    with pytest.raises(SourceUnavailable):
        spoiled.bucket.read(stored, 5, 10, got.extend, Stop())
    assert not got
