"""Retries: only what can pass, with growing pauses, and never a byte twice."""

from __future__ import annotations

import os
import time

import pytest

from adapter.errors import InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.stores.retried import TRIES, RetriedBucket
from adapter.telemetry.metrics import REGISTRY
from adapter.waits import Waits
from adapter.workers import Stop, Stopped
from tests.fakes.memory_bucket import MemoryBucket
from tests.unit.storage.beds import CountedPauses

AWAY = SourceUnavailable("away")


def retried(bucket, jitter=lambda: 0.0):
    return RetriedBucket(bucket, Waits(time.monotonic), jitter=jitter)


def read(bucket, stored, stop):
    got = bytearray()
    bucket.read(stored, 0, stored.size_bytes, got.extend, stop)
    return bytes(got)


def retries():
    return REGISTRY.get_sample_value("triton_adapter_source_retries_total", {"type": "memory"}) or 0


def test_a_listing_is_repeated_until_it_comes():
    """Four failures in a row pass unseen, and are counted."""
    bucket, stop, before = MemoryBucket({"m/a": b"x"}), CountedPauses(), retries()
    bucket.fail("list", AWAY, times=TRIES - 1)
    assert len(retried(bucket).list_page("m/", stop).objects) == 1
    assert stop.pauses == [0.2, 0.4, 0.8, 1.6]
    assert retries() - before == TRIES - 1


def test_the_fifth_failure_in_a_row_is_raised():
    """The store is away; its own words go up."""
    bucket, stop = MemoryBucket({"m/a": b"x"}), CountedPauses()
    bucket.fail("list", AWAY, times=TRIES)
    with pytest.raises(SourceUnavailable) as caught:
        retried(bucket).list_page("m/", stop)
    assert caught.value is AWAY
    assert len(bucket.calls) == TRIES


@pytest.mark.parametrize("error", [SourceDenied("no"), SourceNotFound("no"), SourceChanged("no"), InvalidRequest("no"), OSError("disk")])
@pytest.mark.parametrize("call", ["list", "read"])
def test_what_cannot_pass_is_raised_at_once(error, call):
    """Asking again would not help."""
    bucket, stop = MemoryBucket({"m/a": b"x"}), CountedPauses()
    bucket.fail(call, error)
    with pytest.raises(type(error)):
        retried(bucket).list_page("m/", stop) if call == "list" else read(retried(bucket), bucket.stored("m/a"), stop)
    assert stop.pauses == []


def test_a_read_goes_on_where_it_stopped():
    """What reached the sink is not asked for again."""
    content = os.urandom(1000)
    bucket, stop = MemoryBucket({"m/a": content}), CountedPauses()
    bucket.chunk_bytes = 100
    bucket.fail("read", AWAY, after_bytes=300)
    bucket.fail("read", AWAY, after_bytes=200)
    assert read(retried(bucket), bucket.stored("m/a"), stop) == content
    assert bucket.calls == ["read m/a 0+1000", "read m/a 300+700", "read m/a 500+500"]


def test_a_range_goes_on_where_it_stopped():
    """Offsets are those of the object."""
    bucket, stop, got = MemoryBucket({"m/a": bytes(range(100))}), CountedPauses(), bytearray()
    bucket.fail("read", AWAY, after_bytes=7)
    retried(bucket).read(bucket.stored("m/a"), 40, 20, got.extend, stop)
    assert bucket.calls == ["read m/a 40+20", "read m/a 47+13"]
    assert bytes(got) == bytes(range(40, 60))


def test_progress_starts_the_count_anew():
    """A slow store that cuts every answer still ends, however often it cuts."""
    content = os.urandom(1000)
    bucket, stop = MemoryBucket({"m/a": content}), CountedPauses()
    bucket.chunk_bytes = 10
    bucket.fail("read", AWAY, times=30, after_bytes=20)
    assert read(retried(bucket), bucket.stored("m/a"), stop) == content
    assert set(stop.pauses) == {0.2}


def test_no_progress_ends_a_read():
    """Bounded tries, whatever came before."""
    bucket, stop = MemoryBucket({"m/a": bytes(1000)}), CountedPauses()
    bucket.fail("read", AWAY, after_bytes=500)
    bucket.fail("read", AWAY, times=TRIES - 1)
    with pytest.raises(SourceUnavailable):
        read(retried(bucket), bucket.stored("m/a"), stop)
    assert stop.pauses == [0.2, 0.4, 0.8, 1.6]


def test_a_failure_after_the_last_byte_does_not_count():
    """All bytes are there."""
    bucket, stop = MemoryBucket({"m/a": b"0123456789"}), CountedPauses()
    bucket.fail("read", AWAY, after_bytes=10)
    assert read(retried(bucket), bucket.stored("m/a"), stop) == b"0123456789"
    assert len(bucket.calls) == 1


def test_pauses_grow_to_a_bound_and_are_spread(monkeypatch):
    """Sixteen threads that failed at once do not come back at once."""
    monkeypatch.setattr("adapter.storage.stores.retried.TRIES", 9)
    bucket, stop = MemoryBucket({"m/a": b"x"}), CountedPauses()
    bucket.fail("list", AWAY, times=8)
    retried(bucket, jitter=lambda: 0.5).list_page("m/", stop)
    assert stop.pauses == pytest.approx([0.75 * pause for pause in (0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0)])


def test_a_stop_ends_the_pauses():
    """A cancelled load does not sit out its retries."""
    bucket, stop = MemoryBucket({"m/a": b"x"}), Stop()
    bucket.fail("list", AWAY, times=TRIES)
    original = bucket.list_page

    def list_page(*arguments, **options):
        stop.set()
        return original(*arguments, **options)

    bucket.list_page = list_page
    with pytest.raises(Stopped):
        retried(bucket).list_page("m/", stop)
    assert len(bucket.calls) == 1
