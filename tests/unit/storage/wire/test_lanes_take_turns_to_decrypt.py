"""A large body over TLS: who waits for the network keeps nobody from decrypting, and no more do so at once than may."""

from __future__ import annotations

import os
import select
import socket
import ssl
import threading
import time
from contextlib import nullcontext

import pytest

from adapter.storage.wire import decrypting
from adapter.storage.wire.cutting import cuttable, most_of
from adapter.storage.wire.decrypting import Decrypted, Turns
from adapter.storage.wire.gets import Get
from adapter.storage.wire.moving import BUFFER_BYTES, SPLICE_FROM_BYTES, move
from adapter.workers import Stop, Stopped
from tests.fakes import hell
from tests.real.polls import until
from tests.unit.storage.wire.test_a_body_goes_straight_into_a_file import closing_target

LARGE = 2 * SPLICE_FROM_BYTES + 12_345
WANTS_READ, WANTS_WRITE = ssl.SSLWantReadError("read"), ssl.SSLWantWriteError("write")


class Line:
    """A socket over which TLS gives what the test says: how many bytes, or what it wants before there are more."""

    def __init__(self, *events, seconds=5.0):
        self.ours, self.theirs = socket.socketpair()
        self.ours.settimeout(seconds)
        self.events = list(events)
        self.reads = 0
        self.settimeout, self.gettimeout, self.fileno = self.ours.settimeout, self.ours.gettimeout, self.ours.fileno

    def read(self, size, buffer):
        assert self.gettimeout() == 0
        self.reads += 1
        event = self.events.pop(0) if self.events else WANTS_READ
        if isinstance(event, Exception):
            raise event
        count = min(event, size)
        buffer[:count] = b"x" * count
        return count

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.ours.close()
        self.theirs.close()


def received(line, size=1000, gather_seconds=0.2):
    buffer = memoryview(bytearray(size))
    with Decrypted(line, gather_seconds=gather_seconds) as receive:
        count = receive(buffer)
    assert bytes(buffer) == b"x" * count + bytes(size - count)
    return count


@pytest.mark.parametrize(
    ("events", "count", "reads"),
    [((1000,), 1000, 1), ((400, 400, 400), 1000, 3), ((400, 0), 400, 2), ((0,), 0, 1)],
    ids=["one record", "three", "an end", "an end at once"],
)
def test_what_has_come_is_taken_by_as_many_reads_as_there_are_records(events, count, reads):
    with Line(*events) as line:
        assert received(line) == count
        assert line.reads == reads
        assert line.gettimeout() == 5


def test_what_has_come_is_not_kept_until_the_buffer_is_full():
    """Whoever waits for the body sees that it comes."""
    with Line(400, WANTS_READ, 200) as line:
        assert received(line) in (400, 600)


def test_a_socket_that_can_be_written_to_is_waited_for_where_tls_has_to_answer():
    """Its buffer is full; once the other side reads, what was asked for is taken."""
    with Line(WANTS_WRITE, 1000) as line:
        line.ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            while True:
                line.ours.send(bytes(65536))
        line.ours.settimeout(5)
        found = []
        thread = threading.Thread(target=lambda: found.append(received(line)))
        thread.start()
        until(lambda: line.reads == 1, "it waits", 10)
        assert not found
        while not select.select([], [line.ours], [], 0)[1]:
            line.theirs.recv(1 << 20)
        thread.join(10)
        assert found == [1000]


def test_a_record_that_never_ends_is_a_silence():
    """Its bytes wake the thread, each of them, and are no bytes of the body."""
    is_over = threading.Event()

    def trickle(line):
        while not is_over.wait(0.02):
            line.theirs.send(b"x")

    with Line(seconds=0.5) as line:
        thread = threading.Thread(target=trickle, args=(line,))
        thread.start()
        began = time.monotonic()
        try:
            with pytest.raises(TimeoutError):
                received(line)
        finally:
            is_over.set()
            thread.join()
        assert 0.4 < time.monotonic() - began < 10
        assert line.gettimeout() == 0.5


def test_a_connection_that_broke_keeps_no_turn(monkeypatch):
    monkeypatch.setattr(decrypting, "_turns", Turns(1))
    for failure in (ConnectionResetError("gone"), ssl.SSLError(1, "bad record"), ValueError("closed")):
        with Line(400, failure) as line, pytest.raises(type(failure)):
            received(line)
    with Line(1000) as line:
        assert received(line) == 1000


@pytest.mark.parametrize("count", [1, 3])
def test_no_more_decrypt_at_once_than_may(monkeypatch, count):
    monkeypatch.setattr(decrypting, "_turns", Turns(count))
    lock, counts = threading.Lock(), {"now": 0, "most": 0}

    class Slow(Line):
        def read(self, size, buffer):
            with lock:
                counts["now"] += 1
                counts["most"] = max(counts["most"], counts["now"])
            time.sleep(0.005)
            with lock:
                counts["now"] -= 1
            return super().read(size, buffer)

    def pull():
        with Slow(*[100] * 10) as line:
            assert received(line) == 1000

    threads = [threading.Thread(target=pull) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert counts == {"now": 0, "most": count}


def test_who_waits_for_the_network_keeps_nobody_from_decrypting(manager, server_tls, tmp_path, monkeypatch):
    """There is one turn, and three bodies that stopped in the middle."""
    monkeypatch.setattr(decrypting, "_turns", Turns(1))
    content, stop = os.urandom(LARGE), Stop()

    def pull(server, target, length, stop):
        with cuttable(stop, most_bytes=most_of(length)), Get(manager.connection_from_url(server.url), "/file", {}) as body:
            return move(body, length, target, stop, translated=nullcontext)

    def pull_stalled(path):
        with closing_target(path) as target, pytest.raises((Stopped, OSError)):
            targets.append(target)
            pull(stalled, target, 2 * LARGE, stop)

    targets = []
    with (
        hell.Hell(hell.stalled_body(2 * LARGE, LARGE), tls=server_tls) as stalled,
        hell.Hell(hell.honest(content), tls=server_tls) as honest,
        closing_target(tmp_path / "whole") as target,
    ):
        threads = [threading.Thread(target=pull_stalled, args=(tmp_path / f"{number}",)) for number in range(3)]
        for thread in threads:
            thread.start()
        until(lambda: len(targets) == 3 and all(each.offset > LARGE - BUFFER_BYTES for each in targets), "three wait", 20)
        assert pull(honest, target, LARGE, Stop()) == 0
        assert target.content == content
        assert all(thread.is_alive() for thread in threads)
        stop.set()
        for thread in threads:
            thread.join(10)
        assert not any(thread.is_alive() for thread in threads)
