"""Retries: only what can pass, with growing pauses, for as long as the load may wait, and never a byte twice."""

from __future__ import annotations

import os

import pytest

from adapter.errors import InvalidRequest, SourceChanged, SourceDenied, SourceNotFound, SourceUnavailable
from adapter.storage.stores.retried import Patience, made
from adapter.telemetry.metrics import REGISTRY
from adapter.waits import Waits
from adapter.workers import Stop, Stopped
from tests.fakes.memory_bucket import MemoryBucket
from tests.unit.storage.beds import Clock, CountedPauses, retried

AWAY = SourceUnavailable("the bucket is away", cause="gone")
BUDGET_SECONDS = 28.0


@pytest.fixture
def clock():
    """Nothing but pauses takes time."""
    return Clock()


@pytest.fixture
def stop(clock):
    """Pauses are written down."""
    return CountedPauses(clock)


@pytest.fixture
def seen(bucket, health, clock):
    """The bucket, as a load of 28 s sees it."""
    return retried(bucket, Waits(clock, clock() + BUDGET_SECONDS), health)


def read(bucket, stored, stop):
    got = bytearray()
    bucket.read(stored, 0, stored.size_bytes, got.extend, stop)
    return bytes(got)


def retries():
    return REGISTRY.get_sample_value("triton_adapter_source_retries_total", {"type": "memory"}) or 0


def test_a_listing_is_repeated_until_it_comes(bucket, seen, stop):
    """Eight failures in a row pass unseen, and are counted; pauses double up to five seconds."""
    bucket.put("m/a", b"x")
    before = retries()
    bucket.fail("list", AWAY, times=8)
    assert len(seen.list_page("m/", stop).objects) == 1
    assert stop.pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5])
    assert retries() - before == 8


def test_when_no_other_pause_fits_the_cause_the_tries_and_the_time_are_told(bucket, seen, stop, clock):
    """Before the load's time is up."""
    bucket.fail("list", AWAY, times=100)
    with pytest.raises(SourceUnavailable) as raised:
        seen.list_page("m/", stop)
    assert raised.value.text == "the bucket is away; tried 10 times in 26.2 s"
    assert len(bucket.calls) == 10
    assert clock.now <= 1000 + BUDGET_SECONDS


def test_a_try_must_fit_too(bucket, seen, stop, clock):
    """As long as the last one took, at most what a connection may take."""
    original = bucket.list_page

    def slow(*arguments, **options):
        clock.now += 10
        return original(*arguments, **options)

    bucket.list_page = slow
    bucket.fail("list", AWAY, times=100)
    with pytest.raises(SourceUnavailable, match=r"tried 3 times in 30\.6 s"):
        seen.list_page("m/", stop)
    assert stop.pauses == [0.2, 0.4], "7.4 s were left for the third try"


def test_one_try_is_told_as_such(bucket, health, stop, clock):
    """A budget of next to nothing."""
    bucket.fail("list", AWAY)
    with pytest.raises(SourceUnavailable, match=r"the bucket is away; tried once in 0\.0 s"):
        retried(bucket, Waits(clock, clock() + 0.1), health).list_page("m/", stop)


def test_the_time_that_a_load_may_wait_can_grow(bucket, health, stop, clock):
    """Another call has joined the load."""
    bucket.put("m/a", b"x")
    bucket.fail("list", AWAY, times=5)
    waits = Waits(clock, clock() + 1)
    clock.now += 2
    waits.until = clock() + 20
    assert len(retried(bucket, waits, health).list_page("m/", stop).objects) == 1


CANNOT_PASS = SourceUnavailable("not trusted", can_pass=False)


@pytest.mark.parametrize(
    "error", [SourceDenied("no"), SourceNotFound("no"), SourceChanged("no"), InvalidRequest("no"), OSError("disk"), CANNOT_PASS]
)
@pytest.mark.parametrize("call", ["list", "read"])
def test_what_cannot_pass_is_raised_at_once(bucket, seen, stop, error, call):
    """Asking again would not help."""
    bucket.put("m/a", b"x")
    bucket.fail(call, error)
    with pytest.raises(type(error)) as raised:
        seen.list_page("m/", stop) if call == "list" else read(seen, bucket.stored("m/a"), stop)
    assert raised.value is error
    assert stop.pauses == []


def test_a_store_is_left_alone_for_as_long_as_it_asks(bucket, seen, stop):
    """Where that is longer than the pause would have been."""
    bucket.put("m/a", b"x")
    bucket.fail("list", SourceUnavailable("slow down", retry_after_seconds=7.0))
    bucket.fail("list", SourceUnavailable("slow down", retry_after_seconds=0.0))
    seen.list_page("m/", stop)
    assert stop.pauses == [7.0, 0.4]


def test_who_asks_to_be_left_alone_for_too_long_is_not_waited_for(bucket, seen, stop):
    """At once, and saying so."""
    bucket.fail("list", SourceUnavailable("slow down", retry_after_seconds=120.0))
    with pytest.raises(SourceUnavailable) as raised:
        seen.list_page("m/", stop)
    assert raised.value.text == "slow down; it asks for a pause of 120 s, and 28.0 s are left; tried once in 0.0 s"
    assert stop.pauses == []


def test_a_read_goes_on_where_it_stopped(bucket, seen, stop):
    """What reached the sink is not asked for again."""
    content = os.urandom(1000)
    bucket.put("m/a", content)
    bucket.chunk_bytes = 100
    bucket.fail("read", AWAY, after_bytes=300)
    bucket.fail("read", AWAY, after_bytes=200)
    assert read(seen, bucket.stored("m/a"), stop) == content
    assert bucket.calls == ["read m/a 0+1000", "read m/a 300+700", "read m/a 500+500"]


def test_a_range_goes_on_where_it_stopped(bucket, seen, stop):
    """Offsets are those of the object."""
    got = bytearray()
    bucket.put("m/a", bytes(range(100)))
    bucket.fail("read", AWAY, after_bytes=7)
    seen.read(bucket.stored("m/a"), 40, 20, got.extend, stop)
    assert bucket.calls == ["read m/a 40+20", "read m/a 47+13"]
    assert bytes(got) == bytes(range(40, 60))


def test_what_has_no_version_is_never_gone_on_with(bucket, seen, stop):
    """The rest might be another content's. Before the first byte it is asked for again like anything else."""
    bucket.etag = lambda key: ""
    bucket.put("m/a", b"0123456789")
    bucket.fail("read", AWAY)
    assert read(seen, bucket.stored("m/a"), stop) == b"0123456789"
    bucket.fail("read", AWAY, after_bytes=4)
    with pytest.raises(SourceChanged, match=r"^the body of 'm/a' broke off, and bucket 'b' in memory names no version to go on with$"):
        read(seen, bucket.stored("m/a"), stop)
    assert bucket.calls == ["read m/a 0+10"] * 3


def test_progress_starts_the_pauses_anew(bucket, seen, stop):
    """A slow store that cuts every answer still ends, however often it cuts."""
    content = os.urandom(1000)
    bucket.put("m/a", content)
    bucket.chunk_bytes = 10
    bucket.fail("read", AWAY, times=30, after_bytes=20)
    assert read(seen, bucket.stored("m/a"), stop) == content
    assert set(stop.pauses) == {0.2}


def test_no_progress_ends_a_read(bucket, seen, stop):
    """Whatever came before; the time is that without progress."""
    bucket.put("m/a", bytes(1000))
    bucket.fail("read", AWAY, after_bytes=500)
    bucket.fail("read", AWAY, times=100)
    with pytest.raises(SourceUnavailable, match=r"the bucket is away; tried 10 times in 26\.2 s"):
        read(seen, bucket.stored("m/a"), stop)
    assert stop.pauses[:4] == pytest.approx([0.2, 0.4, 0.8, 1.6])


def test_a_failure_after_the_last_byte_does_not_count(bucket, seen, stop):
    """All bytes are there."""
    bucket.put("m/a", b"0123456789")
    bucket.fail("read", AWAY, after_bytes=10)
    assert read(seen, bucket.stored("m/a"), stop) == b"0123456789"
    assert len(bucket.calls) == 1


def test_pauses_are_spread(bucket, health, stop, clock):
    """Sixteen threads that failed at once do not come back at once."""
    bucket.put("m/a", b"x")
    bucket.fail("list", AWAY, times=3)
    retried(bucket, Waits(clock, clock() + BUDGET_SECONDS), health, jitter=0.5).list_page("m/", stop)
    assert stop.pauses == pytest.approx([0.15, 0.3, 0.6])


def test_a_client_is_made_again_when_its_credentials_could_not_be_asked_for(health, stop, clock):
    """A metadata service that is away for a second; and one that stays away."""
    patience = patience_of(clock, health)
    troubles = [AWAY, AWAY]

    def make(_):
        if troubles:
            raise troubles.pop()
        return "a client"

    assert made(make, patience, kind="gcs", label="storage config 'k'", stop=stop) == "a client"
    assert stop.pauses == [0.2, 0.4]
    troubles = [AWAY] * 100
    with pytest.raises(SourceUnavailable, match=r"the bucket is away; tried 10 times in 26\.2 s"):
        made(make, patience_of(clock, health), kind="gcs", label="storage config 'k'", stop=stop)
    assert health._endpoints == {}, "of nobody's endpoint"


def patience_of(clock, health):
    return Patience(waits=Waits(clock, clock() + BUDGET_SECONDS), health=health, jitter=lambda: 0.0)


def test_a_stop_ends_the_pauses(health):
    """A cancelled load does not sit out its retries."""
    bucket, stop = MemoryBucket({"m/a": b"x"}), Stop()
    bucket.fail("list", AWAY, times=5)
    original = bucket.list_page

    def list_page(*arguments, **options):
        stop.set()
        return original(*arguments, **options)

    bucket.list_page = list_page
    with pytest.raises(Stopped):
        retried(bucket, Waits(Clock()), health).list_page("m/", stop)
    assert len(bucket.calls) == 1
