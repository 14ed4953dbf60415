"""A GET over a kept connection, its body moved past http.client's buffers: the same bytes and the same failures, whichever way it takes."""

from __future__ import annotations

import errno
import os
import threading
import time
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import pytest

from adapter.storage.bucket import FileSink
from adapter.storage.wire import cutting, moving
from adapter.storage.wire.cutting import TIMEOUT_SECONDS, cuttable, most_of
from adapter.storage.wire.gets import Get, read_whole
from adapter.storage.wire.moving import BUFFER_BYTES, PIPE_BYTES, SPLICE_FROM_BYTES, move
from adapter.storage.wire.network import network_words
from adapter.workers import Stop, Stopped
from tests.fakes import hell
from tests.unit.storage.wire.test_a_call_takes_what_it_may import FLOODS, KERNEL_BYTES

LARGE = SPLICE_FROM_BYTES + 3 * PIPE_BYTES + 12_345
SIZES = (1, 8192, 8193, 300_000, LARGE)


class Target(FileSink):
    """A file from its start on; with `takes` False it is on a file system without splice, with `sees` its bytes are looked at."""

    def __init__(self, path, takes=True, sees=False):
        self.file = os.open(path, os.O_RDWR | os.O_CREAT)
        self.takes = takes
        self.sees = sees
        self.offset = self.spliced = 0
        self.fails_at = None

    @property
    def sees_bytes(self):
        return self.sees

    def __call__(self, chunk):
        self.check()
        self.offset += os.pwrite(self.file, chunk, self.offset)

    def take(self, pipe, most_bytes):
        assert not self.sees
        self.check()
        if not self.takes:
            return 0
        count = os.splice(pipe, self.file, most_bytes, offset_dst=self.offset)
        self.offset += count
        self.spliced += count
        return count

    def check(self):
        if self.fails_at is not None and self.offset >= self.fails_at:
            raise OSError(errno.ENOSPC, "full")

    @property
    def content(self):
        return os.pread(self.file, 1 << 30, 0)

    def close(self):
        os.close(self.file)


@pytest.fixture(params=[False, True], ids=["any", "seen"])
def target(request, tmp_path):
    with closing_target(tmp_path / "file", sees=request.param) as made:
        yield made


@contextmanager
def closing_target(path, takes=True, sees=False):
    made = Target(path, takes, sees)
    try:
        yield made
    finally:
        made.close()


def got(manager, url, length, sink, stop=None, headers=None, timeout=TIMEOUT_SECONDS):
    """Bytes that are missing at the end."""
    stop = stop or Stop()
    with cuttable(stop, most_bytes=most_of(length)):
        answer = Get(manager.connection_from_url(url), "/file", headers or {}, timeout)
        with answer as body:
            assert body.is_plain(length)
            return move(body, length, sink, stop, translated=nullcontext)


def idle(manager):
    """Connections that are open in the pools."""
    found = [manager.pools.get(key) for key in list(manager.pools.keys())]
    return sum(1 for pool in found for each in pool.pool.queue if each is not None and each.sock is not None)


@pytest.mark.parametrize(("takes", "sees"), [(True, False), (False, False), (True, True)], ids=["spliced", "by hand", "seen"])
@pytest.mark.parametrize("length", SIZES)
def test_what_was_sent_is_in_the_file(manager, tls, tmp_path, length, takes, sees):
    """Over one connection, as often as it is asked for."""
    content = os.urandom(length)
    with hell.Hell(hell.honest(content), tls=tls) as server:
        for turn in range(3):
            with closing_target(tmp_path / f"{turn}", takes, sees) as target:
                assert got(manager, server.url, length, target) == 0
                assert target.content == content
                is_spliced = takes and not sees and tls is None and length > SPLICE_FROM_BYTES
                assert bool(target.spliced) == is_spliced
        assert server.connections == 1
    assert idle(manager) == 1


@pytest.mark.parametrize("framing", [{}, {"Transfer-Encoding": "chunked"}])
def test_a_connection_is_kept_whoever_reads(manager, tls, framing):
    """Calls differ in when they see the end."""
    answer = b"5\r\nwhole\r\n0\r\n\r\n" if framing else b"whole"
    with hell.Hell(hell.answering(200, framing, answer) if framing else hell.honest(answer), tls=tls) as server:
        for read in (read_whole, lambda body: body.read1(5) + body.read1(1)):
            with cuttable(Stop(), most_bytes=most_of(5)), Get(manager.connection_from_url(server.url), "/", {}) as body:
                assert read(body) == b"whole"
        assert server.connections == 1


@pytest.mark.parametrize("sent", [0, 100, SPLICE_FROM_BYTES + 50_000])
def test_a_body_that_ends_early_says_how_much_is_missing(manager, tls, target, sent):
    with hell.Hell(hell.short_body(LARGE, sent), tls=tls) as server:
        missing = got(manager, server.url, LARGE, target)
    assert missing == LARGE - sent
    assert target.offset == sent
    assert idle(manager) == 0


@pytest.mark.parametrize("sent", [100, SPLICE_FROM_BYTES + 50_000])
def test_a_body_that_stalls_is_waited_for_as_long_as_any_answer(manager, tls, target, sent):
    with hell.Hell(hell.stalled_body(LARGE, sent), tls=tls) as server:
        began = time.monotonic()
        with pytest.raises(OSError) as failed:
            got(manager, server.url, LARGE, target, timeout=(5, 1))
    assert network_words(failed.value) == "no answer within 10 s"
    assert 0.5 < time.monotonic() - began < 30
    assert sent - BUFFER_BYTES < target.offset <= sent  # what was not written is asked for again
    assert idle(manager) == 0


@pytest.mark.parametrize("sent", [100, SPLICE_FROM_BYTES + 50_000])
def test_a_stop_ends_the_wait(manager, tls, target, sent):
    stop = Stop()
    with hell.Hell(hell.stalled_body(LARGE, sent), tls=tls) as server:
        timer = threading.Timer(0.3, stop.set)
        timer.start()
        began = time.monotonic()
        with pytest.raises((Stopped, OSError)):
            got(manager, server.url, LARGE, target, stop)
        timer.join()
    assert time.monotonic() - began < 5
    assert idle(manager) == 0


@pytest.mark.parametrize("fails_at", [0, 8192, SPLICE_FROM_BYTES + 50_000])
def test_a_file_that_fails_keeps_nothing_for_the_next_body(manager, tls, tmp_path, fails_at):
    """A pipe with bytes of another body in it would put them into the next file."""
    contents = [os.urandom(LARGE) for _ in range(2)]
    with hell.Hell(hell.in_turn(hell.honest(contents[0]), hell.honest(contents[1])), tls=tls) as server:
        with closing_target(tmp_path / "a") as target:
            target.fails_at = fails_at
            with pytest.raises(OSError, match="full"):
                got(manager, server.url, LARGE, target)
        assert idle(manager) == 0
        with closing_target(tmp_path / "b") as target:
            assert got(manager, server.url, LARGE, target) == 0
            assert target.content == contents[1]


def test_a_body_that_comes_slowly_is_seen_to_come(manager, tls, tmp_path):
    """Whoever waits for the whole buffer would take a slow line for a dead one."""
    seen = []

    class Watched(Target):
        def __call__(self, chunk):
            super().__call__(chunk)
            seen.append(time.monotonic())

    pieces, pause = 4, 1.5 * moving.GATHER_SECONDS

    def trickle(peer):
        peer.head(200, {"Content-Length": LARGE})
        peer.send(bytes(10_000))
        for _ in range(pieces):
            time.sleep(pause)
            peer.send(bytes(1000))
        peer.send(bytes(LARGE - 10_000 - pieces * 1000))

    with hell.Hell(trickle, tls=tls) as server:
        target = Watched(tmp_path / "file", sees=True)
        assert got(manager, server.url, LARGE, target) == 0
        assert target.content == bytes(LARGE)
        target.close()
    pauses = [later - earlier for earlier, later in pairwise(seen)]
    assert len(seen) > pieces
    assert max(pauses) < pieces * pause


def test_the_last_bytes_wake_whoever_waits_for_them(manager, monkeypatch, target):
    """They are fewer than it sleeps for otherwise."""
    monkeypatch.setattr(moving, "GATHER_SECONDS", 30)
    length, last = 1000 + 3 * BUFFER_BYTES, 1000

    def in_pieces(peer):
        peer.head(200, {"Content-Length": length})
        for piece in (1000, length - 1000 - last, last):
            time.sleep(0.1)
            peer.send(bytes(piece))

    began = time.monotonic()
    with hell.Hell(in_pieces) as server:
        assert got(manager, server.url, length, target) == 0
    assert time.monotonic() - began < 20


def test_a_thread_takes_its_pipe_with_it(manager, tmp_path):
    content = os.urandom(LARGE)

    def pull():
        with closing_target(tmp_path / "file") as target:
            assert got(manager, server.url, LARGE, target) == 0
        assert moving._mine.pipe is not None

    with hell.Hell(hell.honest(content)) as server:
        pull()
        before = len(os.listdir("/proc/self/fd"))
        for _ in range(3):
            thread = threading.Thread(target=pull)
            thread.start()
            thread.join()
    assert len(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("flood", list(FLOODS))
def test_a_flood_ends_the_call(manager, tls, flood):
    behaviour, words, bound = FLOODS[flood]
    with hell.Hell(behaviour, tls=tls) as server:
        pool, bound_call = manager.connection_from_url(server.url), cuttable(Stop(), most_bytes=cutting.PAGE_BYTES)
        with pytest.raises(Exception) as failed, bound_call, Get(pool, "/", {}) as body:
            body.read()
        assert network_words(failed.value) == words
        assert idle(manager) == 0
        assert server.sent_bytes < bound + KERNEL_BYTES
