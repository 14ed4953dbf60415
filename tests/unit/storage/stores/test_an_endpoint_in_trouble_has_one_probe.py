"""Endpoints in trouble: one call tries, the others wait for the outcome; away ones are told at once; nobody waits for ever."""

from __future__ import annotations

import random
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from adapter.errors import SourceChanged, SourceNotFound, SourceUnavailable
from adapter.storage.bucket import Page
from adapter.storage.stores import health as health_module
from adapter.storage.stores import retried as retried_module
from adapter.storage.stores.health import AWAY_SECONDS, KEPT_ENDPOINTS, PROBE_SECONDS, TRY_SECONDS, Endpoint, Health, Turn
from adapter.waits import Waits
from adapter.workers import Stop, Stopped
from tests.fakes.memory_bucket import MemoryBucket
from tests.unit.storage.beds import Clock, CountedPauses, retried

REFUSED = SourceUnavailable("bucket 'b' in memory cannot be reached: the connection was refused", cause="the connection was refused")
PATIENCE_SECONDS = 30
"""For threads of a busy machine."""


@pytest.fixture
def clock():
    """Time by hand."""
    return Clock()


@pytest.fixture
def quick(monkeypatch):
    """Pauses for threads that really wait."""
    for module in (health_module, retried_module):
        monkeypatch.setattr(module, "FIRST_PAUSE_SECONDS", 0.005)
        monkeypatch.setattr(module, "LONGEST_PAUSE_SECONDS", 0.02)


class Server:
    """What stands behind an endpoint: it answers, refuses or hangs, and counts who asks at once."""

    kind, place, endpoint, words = "memory", "memory://b", "memory", "bucket 'b' in memory"
    is_encrypted = False

    def __init__(self, endpoint="memory"):
        self.endpoint = endpoint
        self.state = "up"
        self.asked = self.active = self.most = 0
        self.hangs = threading.Event()
        self.hang_seconds = PATIENCE_SECONDS
        """As a read timeout."""
        self._lock = threading.Lock()

    def list_page(self, prefix, stop, *, token=None, limit=1000, by_folder=False):
        with self._lock:
            self.asked += 1
            self.active += 1
            self.most = max(self.most, self.active)
        try:
            if self.state == "hangs":
                woken = threading.Event()
                with stop.waking(woken.set):
                    self.hangs.set()
                    woken.wait(self.hang_seconds)
                stop.check()
                raise REFUSED
            time.sleep(0)  # let others in
            if self.state == "down":
                raise REFUSED
            return Page(objects=())
        finally:
            with self._lock:
                self.active -= 1

    def read(self, wanted, start, length, sink, stop):
        raise NotImplementedError


def load(server, health, *, seconds=PATIENCE_SECONDS, stop=None, is_survey=False):
    """How one listing of a load ends that may wait so long."""
    waits = Waits(time.monotonic, time.monotonic() + seconds)
    try:
        retried(server, waits, health, is_survey=is_survey).list_page("m", stop or Stop())
    except (SourceUnavailable, SourceNotFound) as error:
        return error.text
    except Stopped:
        return "stopped"
    return "answered"


def bring_trouble(server, health):
    """One call has failed."""
    endpoint = health.of(server)
    endpoint.failed(endpoint.turn(Waits(time.monotonic), Stop()), REFUSED.cause, time.monotonic())


def make_away(clock, health, bucket):
    """A load whose whole time was spent in vain."""
    bucket.fail("list", REFUSED, times=100)
    with pytest.raises(SourceUnavailable):
        retried(bucket, Waits(clock, clock() + 28), health).list_page("m", CountedPauses(clock))
    bucket._faults["list"].clear()
    bucket.calls.clear()


class OwnPauses(CountedPauses):
    """The endpoint's own pauses, which would be waited for in real time, end with those of the call."""

    def __init__(self, clock, endpoint):
        super().__init__(clock)
        self._endpoint = endpoint

    def pause(self, seconds):
        super().pause(seconds)
        if self._endpoint._trouble is not None:
            self._endpoint._trouble.not_before = self._clock()


def is_away(health, bucket, clock):
    return health.of(bucket).away_seconds(clock()) is not None


# ---- trouble


def test_sixteen_lanes_of_a_dead_endpoint_are_one_request_at_a_time(health, quick):
    """The first failure is known to all."""
    server = Server()
    server.state = "down"
    bring_trouble(server, health)
    with ThreadPoolExecutor(16) as lanes:
        ends = list(lanes.map(lambda _: load(server, health, seconds=0.5), range(16)))
    assert server.most == 1
    assert 5 < server.asked < 0.5 / 0.005
    assert all(end.startswith("bucket 'b' in memory ") and "the connection was refused; tried " in end for end in ends)


def test_those_who_wait_go_on_when_the_probe_is_answered(health, quick):
    """All of them, from one probe."""
    server = Server()
    server.state = "down"
    with ThreadPoolExecutor(16) as lanes:
        loads = [lanes.submit(load, server, health) for _ in range(16)]
        while server.asked < 20:
            time.sleep(0.001)
        server.state = "up"
        assert [each.result(PATIENCE_SECONDS) for each in loads] == ["answered"] * 16


def test_those_who_wait_behind_a_probe_that_hangs_end_with_their_own_work(health, quick):
    """By their own stop, and by their own time."""
    server, stop = Server(), Stop()
    server.state = "down"
    bring_trouble(server, health)
    server.state = "hangs"
    with ThreadPoolExecutor(4) as lanes:
        probe_stop = Stop()
        probe = lanes.submit(load, server, health, stop=probe_stop)
        assert server.hangs.wait(PATIENCE_SECONDS)
        stopped, late = lanes.submit(load, server, health, stop=stop), lanes.submit(load, server, health, seconds=0.1)
        assert late.result(PATIENCE_SECONDS) == "bucket 'b' in memory is away: the connection was refused"
        stop.set()
        assert stopped.result(PATIENCE_SECONDS) == "stopped"
        waiting = lanes.submit(load, server, health)
        server.state = "up"
        probe_stop.set()
        assert probe.result(PATIENCE_SECONDS) == "stopped"
        assert waiting.result(PATIENCE_SECONDS) == "answered", "a probe that was stopped makes room for the next"


def test_one_object_that_fails_does_not_stop_the_others(health, clock):
    """After its first failure the next call probes at once, and ends the trouble."""
    bucket = MemoryBucket({"m/bad": b"x", "m/good": b"x"})
    waits = Waits(clock, clock() + 28)
    others = []

    class Others(CountedPauses):
        def pause(self, seconds):
            self.read_another()
            super().pause(seconds)
            self.read_another()

        def read_another(self):
            before = clock()
            retried(bucket, waits, health).read(bucket.stored("m/good"), 0, 1, others.append, Stop())
            assert clock() == before, "no other call waits"

    failing = Others(clock)
    original = bucket.read

    def read(wanted, *arguments):
        if wanted.key == "m/bad":
            raise REFUSED
        return original(wanted, *arguments)

    bucket.read = read
    with pytest.raises(SourceUnavailable, match=r"tried 10 times in 26\.2 s"):
        retried(bucket, waits, health).read(bucket.stored("m/bad"), 0, 1, others.append, failing)
    assert failing.pauses == pytest.approx([0.2, 0.4, 0.8, 1.6, 3.2, 5, 5, 5, 5])
    assert others == [b"x"] * 18
    assert not is_away(health, bucket, clock), "it answered others all the time"


def test_two_endpoints_do_not_know_each_other(health, quick):
    """Nor do two types of store on one host."""
    dead, alive, other_kind = Server("a:1"), Server("b:1"), Server("a:1")
    other_kind.kind = "http"
    dead.state = "down"
    load(dead, health, seconds=0.2)
    assert load(alive, health, seconds=0.001) == load(other_kind, health, seconds=0.001) == "answered"


# ---- away


def test_an_endpoint_that_was_away_for_a_whole_budget_gets_one_probe_per_load(bucket, health, clock):
    """It fails at once, and names the endpoint, the time and the cause."""
    make_away(clock, health, bucket)
    for _ in range(3):
        clock.now += 60
        bucket.fail("list", REFUSED)
        stop = CountedPauses(clock)
        with pytest.raises(SourceUnavailable) as raised:
            retried(bucket, Waits(clock, clock() + 28), health).list_page("m", stop)
        assert stop.pauses == []
    assert raised.value.text == f"{REFUSED.text}; tried once in 0.0 s; memory has been away for 206 s"
    assert len(bucket.calls) == 3


@pytest.mark.parametrize("answer", [None, SourceNotFound("there is no bucket")])
def test_one_probe_that_is_answered_ends_it(bucket, health, clock, answer):
    """Any answer with a meaning; the next failure is repeated as ever."""
    make_away(clock, health, bucket)
    seen = retried(bucket, Waits(clock, clock() + 28), health)
    if answer is None:
        seen.list_page("m", Stop())
    else:
        bucket.fail("list", answer)
        with pytest.raises(SourceNotFound):
            seen.list_page("m", Stop())
    assert not is_away(health, bucket, clock)
    bucket.fail("list", REFUSED, times=3)
    seen.list_page("m", stop := CountedPauses(clock))
    assert len(stop.pauses) == 3


def test_a_load_that_began_before_it_was_known_uses_its_own_time(bucket, health, clock):
    """It may be the one that sees the endpoint come back."""
    early = Waits(clock, clock() + 100)
    clock.now += 1
    make_away(clock, health, bucket)
    clock.now += 10

    class LongPauses(CountedPauses):
        def pause(self, seconds):
            super().pause(seconds)
            clock.now += 10  # the endpoint's own pauses have grown before

    bucket.fail("list", REFUSED, times=2)
    retried(bucket, early, health).list_page("m", stop := LongPauses(clock))
    assert stop.pauses == pytest.approx([0.2, 0.4])
    assert not is_away(health, bucket, clock)


def test_a_probe_of_an_away_endpoint_is_cut_and_leaves_nothing(health, quick, monkeypatch):
    """All loads that wait share it; its thread is free afterwards."""
    server = Server()
    server.state = "down"
    load(server, health, seconds=0.5)
    monkeypatch.setattr(health_module, "PROBE_SECONDS", 0.3)
    server.state, server.asked, begun = "hangs", 0, time.monotonic()
    with ThreadPoolExecutor(8) as loads:
        ends = [each.result(PATIENCE_SECONDS) for each in [loads.submit(load, server, health) for _ in range(8)]]
    assert time.monotonic() - begun < PATIENCE_SECONDS / 2
    assert all(" away for " in end for end in ends), ends
    assert any("no answer within 0.3 s" in end for end in ends)
    assert server.active == 0 and not health.alarms._running
    server.state = "up"
    assert load(server, health) == "answered"


@pytest.mark.parametrize(("ended_by", "is_proof"), [("budget", True), ("user", False)])
def test_a_silent_endpoint_is_away_when_a_budget_ends(health, clock, ended_by, is_proof):
    """A user who cancels proves nothing."""
    bucket, stop = MemoryBucket({"m": b"x"}), Stop()
    waits = Waits(clock, clock() + 28)

    def silent(*_, **__):
        clock.now += 28 if ended_by == "budget" else 20
        stop.set()
        stop.check()

    bucket.list_page = silent
    with pytest.raises(Stopped):
        retried(bucket, waits, health).list_page("m", stop)
    assert is_away(health, bucket, clock) is is_proof


@pytest.mark.parametrize("jitter", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("budget", [0.9, 1.8, 3.5, 4.9, 7.2, 12.5, 27.0, 87.0])
def test_tries_that_are_used_up_prove_it_whatever_the_budget(bucket, health, clock, jitter, budget):
    """Pauses double, so the last one may be the longer part of a short budget."""
    bucket.fail("list", REFUSED, times=100)
    with pytest.raises(SourceUnavailable):
        retried(bucket, Waits(clock, clock() + budget), health, jitter=jitter).list_page("m", OwnPauses(clock, health.of(bucket)))
    assert is_away(health, bucket, clock)


def test_a_load_that_begins_before_the_thread_of_the_last_one_told_it_is_a_later_one(bucket, health, clock):
    """A load whose time is up is answered at once, and its thread is woken after that."""
    waits = Waits(clock, clock() + 27)
    clock.now += 28
    later = Waits(clock, clock() + 27)
    clock.now += 0.1
    health.of(bucket).ended_a_load(waits, 1000.0, "no answer")
    assert health.of(bucket).turn(later, Stop()).is_last


def test_after_some_minutes_one_load_has_its_whole_time_again(bucket, health, clock):
    """Its first answer ends it, however many tries that takes."""
    make_away(clock, health, bucket)
    clock.now += AWAY_SECONDS
    bucket.fail("list", REFUSED, times=3)
    retried(bucket, Waits(clock, clock() + 28), health).list_page("m", stop := OwnPauses(clock, health.of(bucket)))
    assert stop.pauses == pytest.approx([0.2, 0.4, 0.8])
    assert not is_away(health, bucket, clock)


def test_an_answer_that_takes_longer_than_a_probe_is_not_refused_for_ever(bucket, health, clock):
    """A busy store, or a prefix of millions of keys: within the load's time, as if nothing had been."""
    make_away(clock, health, bucket)
    endpoint, budget = health.of(bucket), 28.0
    clock.now += AWAY_SECONDS / 2
    early = endpoint.turn(Waits(clock, clock() + budget), Stop())
    endpoint.failed(early, "no answer", clock())
    assert early.is_last and early.probe_seconds == PROBE_SECONDS
    clock.now += AWAY_SECONDS / 2
    whole = endpoint.turn(Waits(clock, clock() + budget), Stop())
    assert not whole.is_last and whole.probe_seconds == budget


def test_the_others_are_told_at_once_while_one_load_has_its_whole_time(bucket, health, clock):
    """And so is who comes after it, for as long again: it has failed too."""
    make_away(clock, health, bucket)
    clock.now += AWAY_SECONDS
    bucket.fail("list", REFUSED, times=1000)

    def ends_at_once():
        with pytest.raises(SourceUnavailable, match=r"; memory has been away for \d+ s$"):
            retried(bucket, Waits(clock, clock() + 28), health).list_page("m", other := CountedPauses(clock))
        return other.pauses == []

    class Others(OwnPauses):
        def pause(self, seconds):
            assert ends_at_once()
            super().pause(seconds)

    with pytest.raises(SourceUnavailable, match="tried 10 times in"):
        retried(bucket, Waits(clock, clock() + 28), health).list_page("m", stop := Others(clock, health.of(bucket)))
    assert len(stop.pauses) == 9
    clock.now += AWAY_SECONDS - 30
    assert ends_at_once()


def test_a_load_that_is_stopped_leaves_its_whole_time_to_the_next(bucket, health, clock):
    """A look of five seconds at a model that serves already proves nothing."""
    make_away(clock, health, bucket)
    clock.now += AWAY_SECONDS
    endpoint = health.of(bucket)
    for seconds in (5, 5, 0):
        clock.now += seconds
        turn = endpoint.turn(Waits(clock, clock() + 28), Stop())
        assert not turn.is_last
        endpoint.left(turn)
    failing = endpoint.turn(Waits(clock, clock() + 28), Stop())
    endpoint.failed(failing, "gone", clock())
    endpoint.left(failing)
    assert not failing.is_last
    assert endpoint.turn(Waits(clock, clock() + 28), Stop()).is_last


def test_a_probe_that_takes_long_makes_room_for_the_next(health, clock):
    """It is not cut: what it waits for may be an honest answer, and comes too late for nobody."""
    endpoint = health.of(Server())
    waits = Waits(clock, clock() + 100)
    endpoint.failed(endpoint.turn(waits, Stop()), "gone", clock())
    slow = endpoint.turn(waits, Stop())
    assert slow.probe_seconds == 100
    clock.now += TRY_SECONDS
    other = endpoint.turn(waits, Stop())
    endpoint.failed(slow, "gone", clock())
    endpoint.left(slow)
    assert endpoint._trouble.prober is other
    endpoint.answered(clock())
    assert endpoint.is_idle


def test_a_pull_that_is_slow_is_not_away(health, clock):
    """Bytes came until shortly before the end."""
    bucket, stop = MemoryBucket({"m": bytes(200)}), Stop()
    bucket.chunk_bytes = 10

    def sink(_):
        clock.now += 2.9
        if clock() > 1028:
            stop.set()

    with pytest.raises(Stopped):
        retried(bucket, Waits(clock, clock() + 28), health).read(bucket.stored("m"), 0, 200, sink, stop)
    assert not is_away(health, bucket, clock)


def test_a_survey_proves_nothing_and_holds_nobody_up(health, clock, bucket):
    """Whatever it meets; it does not ask where there is trouble."""
    bucket.fail("list", REFUSED, times=100)
    with pytest.raises(SourceUnavailable):
        retried(bucket, Waits(clock, clock() + 28), health, is_survey=True).list_page("m", CountedPauses(clock))
    assert health.of(bucket).is_idle
    make_away(clock, health, bucket)
    with pytest.raises(SourceUnavailable, match="is away: the connection was refused"):
        retried(bucket, Waits(clock, clock() + 0.3), health, is_survey=True).list_page("m", Stop())
    assert bucket.calls == []


def test_what_cannot_pass_is_no_trouble_of_the_endpoint(health, clock, bucket):
    """A certificate that this config does not trust; another config may."""
    bucket.fail("list", SourceUnavailable("not trusted", can_pass=False))
    with pytest.raises(SourceUnavailable):
        retried(bucket, Waits(clock, clock() + 28), health).list_page("m", Stop())
    assert health.of(bucket).is_idle


def test_a_body_that_breaks_off_is_no_answer(bucket, health, clock):
    """What has no version is not gone on with. That says nothing of the endpoint, which is in trouble."""
    bucket.etag = lambda key: ""
    bucket.put("m/a", b"0123456789")
    bucket.fail("read", REFUSED, after_bytes=4)

    def sink(_):
        assert health.of(bucket).is_idle

    class Meanwhile(CountedPauses):
        def pause(self, seconds):
            raise AssertionError("nothing is to be waited for")

    original = bucket.read

    def read(*arguments):
        try:
            original(*arguments)
        finally:  # another call fails
            clock.now += 1
            health.of(bucket).failed(Turn(clock()), "gone", clock())

    bucket.read = read
    with pytest.raises(SourceChanged, match="broke off"):
        retried(bucket, Waits(clock, clock() + 28), health).read(bucket.stored("m/a"), 0, 10, sink, Meanwhile(clock))
    assert not health.of(bucket).is_idle


def test_another_loads_bucket_is_not_named(health, clock):
    """What is told of a shared endpoint is its cause, in one's own words."""
    theirs, ours = MemoryBucket(bucket="secret-project"), MemoryBucket(bucket="ours")
    theirs.fail("list", SourceUnavailable("bucket 'secret-project' ended 'their/key' early", cause="its answers end early"), times=100)
    with pytest.raises(SourceUnavailable):
        retried(theirs, Waits(clock, clock() + 28), health).list_page("m", CountedPauses(clock))
    with pytest.raises(SourceUnavailable) as raised:
        retried(ours, Waits(clock, clock() + 0.3), health, is_survey=True).list_page("m", Stop())
    assert raised.value.text == "bucket 'ours' in memory is away: its answers end early"


# ---- bounds


def test_the_memory_of_endpoints_is_bounded_and_keeps_those_in_trouble(health, clock):
    """A request may name any endpoint."""
    dead = MemoryBucket()
    make_away(clock, health, dead)
    for number in range(2 * KEPT_ENDPOINTS):
        health.of(Server(f"h{number}:1"))
    assert len(health._endpoints) == KEPT_ENDPOINTS
    assert is_away(health, dead, clock)
    for number in range(2 * KEPT_ENDPOINTS):
        health.of(Server(f"h{number}:1")).ended_a_load(Waits(clock, clock() + 1), clock() - 10, "x")
    assert len(health._endpoints) == KEPT_ENDPOINTS


def test_the_thread_of_the_alarms_ends():
    """With its owner."""
    before = {thread.ident for thread in threading.enumerate()}
    made = Health()
    (alarm,) = [thread for thread in threading.enumerate() if thread.ident not in before and thread.name.startswith("alarm")]
    made.close()
    alarm.join(PATIENCE_SECONDS)
    assert not alarm.is_alive()


@pytest.mark.parametrize("woken_by", ["its stop", "the probe that ends", "an answer"])
def test_no_wake_is_lost_wherever_it_falls(clock, monkeypatch, woken_by):
    """Before the wait, in it, or between its look and its sleep; nothing but the wake ends it."""
    monkeypatch.setattr(health_module, "TRY_SECONDS", threading.TIMEOUT_MAX)
    chance, waits = random.Random(woken_by), Waits(clock)
    for _ in range(500):
        endpoint, stop = Endpoint("memory"), Stop()
        endpoint.failed(endpoint.turn(waits, Stop()), "gone", clock())
        probe = endpoint.turn(waits, Stop())
        ended = threading.Event()

        def wait(endpoint=endpoint, stop=stop, ended=ended):
            with suppress(Stopped):
                endpoint.turn(waits, stop)
            ended.set()

        threading.Thread(target=wait, daemon=True).start()
        for _ in range(chance.randrange(2000)):
            pass
        if woken_by == "its stop":
            stop.set()
        elif woken_by == "an answer":
            endpoint.answered(clock())
        else:
            endpoint.left(probe)
        assert ended.wait(PATIENCE_SECONDS)


@pytest.mark.parametrize("seed", range(12))
def test_any_history_ends(quick, monkeypatch, seed):
    """Servers that go and come back, loads that are stopped, short and long times: nobody waits for ever, nothing is left."""
    monkeypatch.setattr(health_module, "PROBE_SECONDS", 0.03)
    monkeypatch.setattr(health_module, "TRY_SECONDS", 0.05)
    chance, health = random.Random(seed), Health()
    servers = [Server("a:1"), Server("b:1")]
    for server in servers:
        server.hang_seconds = 0.05
    plans = [
        [(chance.choice(servers), chance.choice([0.005, 0.05, 0.3, PATIENCE_SECONDS]), chance.random() < 0.2, chance.random() < 0.1)
         for _ in range(25)] for _ in range(12)
    ]  # fmt: skip
    flips = [(chance.choice(servers), chance.choice(["up", "down", "hangs", "up"]), chance.random() * 0.03) for _ in range(60)]
    stops: list[Stop] = []

    def lane(plan):
        ends = []
        for server, seconds, is_stopped, is_survey in plan:
            stop = Stop()
            if is_stopped:
                stops.append(stop)
            ends.append(load(server, health, seconds=seconds, stop=stop, is_survey=is_survey))
        return ends

    with ThreadPoolExecutor(12) as lanes:
        running = [lanes.submit(lane, plan) for plan in plans]
        for server, state, pause in flips:
            server.state = state
            time.sleep(pause)
            while stops and chance.random() < 0.5:
                stops.pop().set()
        for server in servers:
            server.state = "up"
        for stop in stops:
            stop.set()
        hung = threading.Timer(PATIENCE_SECONDS, lambda: [stop.set() for stop in stops])
        hung.start()
        begun = time.monotonic()
        ends = [end for each in running for end in each.result(2 * PATIENCE_SECONDS)]
        hung.cancel()
    assert len(ends) == 12 * 25 and "answered" in ends
    assert time.monotonic() - begun < PATIENCE_SECONDS / 2, "somebody was woken by the end of his time alone"
    for server in servers:
        assert load(server, health) == "answered"
        assert server.active == 0 and health.of(server).is_idle
    assert not health.alarms._running
    health.close()
