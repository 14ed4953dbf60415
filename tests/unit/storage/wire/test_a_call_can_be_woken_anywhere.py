"""A stop ends a call wherever it waits: for a name, a connection, a proxy, a handshake, headers, the body."""

from __future__ import annotations

import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from adapter.storage.wire import sessions
from adapter.storage.wire.calls import telling
from adapter.storage.wire.cutting import PAGE_BYTES, cuttable
from adapter.waits import Wait
from adapter.workers import Stop
from tests.fakes import hell
from tests.unit.storage.wire.askers import ASKERS, Trust, idle

PATIENCE_SECONDS = 60
"""Of the client. A stop is far quicker, also on a busy machine."""
SOON_SECONDS = 15


def a_silent_name(life, monkeypatch, tls):
    asked, over, real = threading.Event(), threading.Event(), socket.getaddrinfo
    life.callback(over.set)

    def look_up(host, *args):
        if host != "silent.test" or socket.AI_NUMERICHOST in args:
            return real(host, *args)
        asked.set()
        over.wait()
        raise socket.gaierror(socket.EAI_AGAIN, "over")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    return "http://silent.test/", None, asked, "the address of silent.test"


def a_dropped_network(life, monkeypatch, tls):
    port = life.enter_context(hell.BlackHole()).port
    return f"http://127.0.0.1:{port}/", None, None, f"a connection to 127.0.0.1:{port}"


def a_handshake(life, monkeypatch, tls):
    server = life.enter_context(hell.Hell(hell.silent(), stalls_in_tls=True))
    return server.url, None, server.hanging, f"the TLS handshake of 127.0.0.1:{server.port}"


def a_silent_proxy(life, monkeypatch, tls):
    proxy = life.enter_context(hell.Hell(hell.silent()))
    return "https://far.test/", proxy.url, proxy.hanging, f"a tunnel through the proxy 127.0.0.1:{proxy.port}"


def a_handshake_behind_a_proxy(life, monkeypatch, tls):
    server = life.enter_context(hell.Hell(hell.silent(), stalls_in_tls=True))
    proxy = life.enter_context(hell.Hell(hell.proxying()))
    return server.url, proxy.url, server.hanging, f"the TLS handshake of 127.0.0.1:{server.port}"


def a_handshake_inside_of_the_tls_of_a_proxy(life, monkeypatch, tls):
    server = life.enter_context(hell.Hell(hell.silent(), stalls_in_tls=True))
    proxy = life.enter_context(hell.Hell(hell.proxying(), tls=tls))
    return server.url, proxy.url, server.hanging, f"the TLS handshake of 127.0.0.1:{server.port}"


def headers(life, monkeypatch, tls):
    server = life.enter_context(hell.Hell(hell.silent(), tls=tls))
    return server.url, None, server.hanging, "this"


def a_body(life, monkeypatch, tls):
    server = life.enter_context(hell.Hell(hell.stalled_body(100, 10), tls=tls))
    return server.url, None, server.hanging, "this"


def a_body_that_ends_with_the_connection(life, monkeypatch, tls):
    def answer(peer):
        peer.head(200, {"Connection": "close"})
        peer.send(b"some")
        peer.hang()

    server = life.enter_context(hell.Hell(answer, tls=tls))
    return server.url, None, server.hanging, "this"


def a_body_inside_of_the_tls_of_a_proxy(life, monkeypatch, tls):
    server = life.enter_context(hell.Hell(hell.stalled_body(100, 10), tls=tls))
    proxy = life.enter_context(hell.Hell(hell.proxying(), tls=tls))
    return server.url, proxy.url, server.hanging, "this"


PLACES = [
    a_silent_name, a_dropped_network, a_handshake, a_silent_proxy, a_handshake_behind_a_proxy, a_handshake_inside_of_the_tls_of_a_proxy,
    headers, a_body, a_body_that_ends_with_the_connection, a_body_inside_of_the_tls_of_a_proxy,
]  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__)
@pytest.mark.parametrize("library", list(ASKERS))
def test_a_stop_ends_the_wait(library, place, server_tls, ca_file, monkeypatch):
    """And before the stop, the wait is told in words."""
    monkeypatch.setattr(sessions, "TIMEOUT_SECONDS", (PATIENCE_SECONDS, PATIENCE_SECONDS))
    stop, wait = Stop(), Wait("this", time.monotonic, 0)
    with ThreadPoolExecutor(1) as pool, ExitStack() as life:
        url, proxy, reached, words = place(life, monkeypatch, server_tls)
        trust = Trust(ca_file=ca_file, proxy=proxy, connect_seconds=PATIENCE_SECONDS, read_seconds=PATIENCE_SECONDS)
        ask = life.enter_context(ASKERS[library](trust))

        def call():
            with telling(wait), cuttable(stop, most_bytes=PAGE_BYTES):
                return ask.get(url).read()

        asked = pool.submit(call)
        if reached is not None:
            assert reached.wait(SOON_SECONDS)
        until = time.monotonic() + SOON_SECONDS
        while wait.what != words:
            assert time.monotonic() < until, wait.what
            assert not asked.done(), asked.exception()
            time.sleep(0.005)
        stop.set()
        begun = time.monotonic()
        failure = asked.exception(PATIENCE_SECONDS)
        assert time.monotonic() - begun < SOON_SECONDS
        assert failure is not None or asked.result() in (b"some", b"s" * 10)  # a body that ends with its connection, or unchecked
        assert idle(ask) == 0
        assert wait.what == "this"


@pytest.mark.parametrize("library", list(ASKERS))
def test_a_call_that_was_stopped_before_dials_nothing(library):
    """Not even for its first connection."""
    stop = Stop()
    with ASKERS[library](Trust()) as ask, hell.Hell(hell.honest(b"x")) as server, ThreadPoolExecutor(1) as pool:

        def call():
            with cuttable(stop, most_bytes=PAGE_BYTES):
                stop.set()
                ask.get(server.url)

        assert type(pool.submit(call).exception()).__name__ == "Stopped"
        assert server.requests == []


def test_several_addresses_share_the_time_to_connect(monkeypatch):
    """An address in a dropped network leaves its share to the next one."""
    with hell.BlackHole() as hole, hell.Hell(hell.honest(b"x"), host="127.0.0.1") as server:
        real = socket.getaddrinfo
        answers = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, 0)) for host in ("127.0.0.1", "127.0.0.2")]
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *rest: answers if host == "two.test" else real(host, *rest))
        begun = time.monotonic()
        with ASKERS["urllib3"](Trust(connect_seconds=1)) as ask, cuttable(Stop(), most_bytes=PAGE_BYTES):
            with pytest.raises(Exception, match="no connection"):
                ask.get(f"http://two.test:{hole.port}/")
            assert ask.get(f"http://two.test:{server.port}/").read() == b"x"
        assert time.monotonic() - begun < SOON_SECONDS
