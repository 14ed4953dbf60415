"""The operating system's resolver can be silent for half a minute, and nothing wakes it."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from urllib3.exceptions import LocationParseError

from adapter.storage.wire.calls import Call
from adapter.storage.wire.metering import Bound
from adapter.storage.wire.names import THREADS, Resolver, SlowName, addresses_of
from adapter.workers import Stopped

SOON_SECONDS = 30
FOUND = [
    (socket.AF_INET, socket.SOCK_STREAM, 6, "", ("192.0.2.1", 0)),
    (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("2001:db8::1", 0, 0, 0)),
]


class NameServer:
    """In the resolver's place. Names that begin with `silent` are not answered before the end."""

    def __init__(self):
        self.asked = []
        self.over = threading.Event()
        self.reached = threading.Semaphore(0)

    def look_up(self, host, *_):
        self.asked.append(host)
        self.reached.release()
        if host.startswith("silent"):
            self.over.wait()
        if host.startswith("none"):
            raise socket.gaierror(socket.EAI_NONAME, "no such name")
        return FOUND


@pytest.fixture
def names(monkeypatch):
    """What is asked for names, and how it answers."""
    server = NameServer()
    monkeypatch.setattr(socket, "getaddrinfo", server.look_up)
    yield server
    server.over.set()


def resolve(resolver, name, seconds=SOON_SECONDS, call=None):
    return [address.text for address in resolver.resolve(name, seconds=seconds, call=call)]


def test_a_name_has_its_addresses_in_their_order(names):
    assert resolve(Resolver("t", 1), "here") == ["192.0.2.1", "2001:db8::1"]
    assert resolve(Resolver("t", 1), "here") == ["192.0.2.1", "2001:db8::1"]
    assert names.asked == ["here", "here"]


def test_no_such_name_is_said_as_the_system_says_it(names):
    with pytest.raises(socket.gaierror) as failed:
        resolve(Resolver("t", 1), "none")
    assert failed.value.errno == socket.EAI_NONAME


def test_a_silent_name_is_waited_for_so_long(names):
    """The words name the bound."""
    with pytest.raises(SlowName, match=r"its name was not resolved within 0.05 s"):
        resolve(Resolver("t", 1), "silent", seconds=0.05)


def test_a_name_is_asked_for_once_at_a_time(names):
    """Eight callers of one silent name hold one thread, and get one answer."""
    resolver = Resolver("t", 2)
    with ThreadPoolExecutor(8) as callers:
        waiting = [callers.submit(resolve, resolver, "silent") for _ in range(8)]
        assert names.reached.acquire(timeout=SOON_SECONDS)
        while len(resolver._asked["silent"][1]) < 8:
            pass
        assert resolve(resolver, "other") == ["192.0.2.1", "2001:db8::1"]
        names.over.set()
        assert all(each.result(SOON_SECONDS) == ["192.0.2.1", "2001:db8::1"] for each in waiting)
    assert names.asked == ["silent", "other"]
    assert not resolver._asked


def test_names_that_nobody_waits_for_any_more_are_not_asked_for(names):
    """While every thread is taken, nothing piles up."""
    resolver = Resolver("t", 1)
    with pytest.raises(SlowName):
        resolve(resolver, "silent", seconds=0.05)
    for number in range(20):
        with pytest.raises(SlowName):
            resolve(resolver, f"later{number}", seconds=0.001)
    assert list(resolver._asked) == ["silent"]
    names.over.set()
    assert resolve(resolver, "now") == ["192.0.2.1", "2001:db8::1"]
    assert names.asked == ["silent", "now"]


def test_a_cut_ends_the_wait(names):
    """And a call that was cut before does not begin one."""
    call = Call(Bound(1, as_stored=False))
    resolver = Resolver("t", 1)
    with ThreadPoolExecutor(1) as callers:
        waiting = callers.submit(resolve, resolver, "silent", SOON_SECONDS, call)
        assert names.reached.acquire(timeout=SOON_SECONDS)
        call.cut()
        assert type(waiting.exception(SOON_SECONDS)) is Stopped
    with pytest.raises(Stopped):
        resolve(resolver, "silent", call=call)


def test_silent_names_of_requests_do_not_keep_stored_names_waiting(monkeypatch):
    """Whoever makes up names has threads of their own to fill."""
    server, real = NameServer(), socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest: (real if socket.AI_NUMERICHOST in rest else server.look_up)(host, *rest))
    for number in range(2 * THREADS):
        with pytest.raises(SlowName):
            addresses_of(f"silent{number}.test", seconds=0.01, call=None, is_requested=True)
    assert addresses_of("here.test", seconds=SOON_SECONDS, call=None, is_requested=False)[0].text == "192.0.2.1"
    server.over.set()
    assert addresses_of("here.test", seconds=SOON_SECONDS, call=None, is_requested=True)[0].text == "192.0.2.1"


@pytest.mark.parametrize(
    ("host", "text"),
    [("127.0.0.1", "127.0.0.1"), ("127.1", "127.0.0.1"), ("0x7f000001", "127.0.0.1"), ("2130706433", "127.0.0.1"), ("[::1]", "::1"),
     ("0", "0.0.0.0"), ("0177.0.0.1", "127.0.0.1")],
)  # fmt: skip
def test_numbers_are_read_as_the_system_reads_them(host, text):
    """Without a thread: whatever the notation."""
    assert addresses_of(host, seconds=0, call=None, is_requested=True)[0].text == text


@pytest.mark.parametrize("host", ["a" * 64 + ".test", "a..test"])
def test_what_cannot_be_a_name_is_refused(host):
    with pytest.raises(LocationParseError):
        addresses_of(host, seconds=0, call=None, is_requested=False)


def test_nothing_is_kept_of_names_that_are_answered_too_late(names):
    """Whoever makes up names whose servers are silent would fill the memory."""
    resolver = Resolver("t", 2)
    for number in range(2):
        with pytest.raises(SlowName):
            resolve(resolver, f"silent-{number}", seconds=0.05)
    names.over.set()
    until = time.monotonic() + SOON_SECONDS
    while resolver._asked and time.monotonic() < until:
        time.sleep(0.01)
    assert not resolver._asked


def test_a_name_that_nobody_waits_for_any_more_is_looked_up_for_the_next(names):
    """Given up before a thread was free, and wanted again."""
    resolver = Resolver("t", 1)
    for name in ("silent", "here"):
        with pytest.raises(SlowName):
            resolve(resolver, name, seconds=0.05)
    names.over.set()
    assert resolve(resolver, "here") == ["192.0.2.1", "2001:db8::1"]


def test_names_that_were_silent_do_not_take_the_threads_of_others_again(names):
    """Each takes a thread of all once; then two threads are theirs. One that is answered is a name like others."""
    resolver = Resolver("t", 2)
    for number in range(2):
        with pytest.raises(SlowName):
            resolve(resolver, f"silent{number}", seconds=0.05)
    with pytest.raises(SlowName):
        resolve(resolver, "here", seconds=0.05)
    assert list(resolver._slow) == ["silent0", "silent1"], "what waited for a thread was not slow itself"
    names.over.set()
    until = time.monotonic() + SOON_SECONDS
    while resolver._asked and time.monotonic() < until:
        time.sleep(0.01)

    names.over.clear()
    for number in range(2):
        resolver._note_slow(f"silent{number}")
        with pytest.raises(SlowName):
            resolve(resolver, f"silent{number}", seconds=0.05)
    assert resolve(resolver, "here") == ["192.0.2.1", "2001:db8::1"]
    names.over.set()
    assert resolve(resolver, "silent0") == ["192.0.2.1", "2001:db8::1"]


def test_a_name_that_is_answered_quickly_is_not_slow_any_more(names):
    names.over.set()
    resolver = Resolver("t", 1)
    resolver._note_slow("here")
    assert resolve(resolver, "here") and not resolver._slow
    for number in range(1000):
        resolver._note_slow(str(number))
    assert len(resolver._slow) == 256
