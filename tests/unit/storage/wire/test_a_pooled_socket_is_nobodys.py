"""A stop that lands on the last chunk cuts nothing: the connection is back in its pool, and may be another call's."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from urllib3 import HTTPConnectionPool

from adapter.storage.wire.cutting import PAGE_BYTES, cuttable
from adapter.workers import Stop
from tests.fakes import hell
from tests.unit.storage.wire.askers import ASKERS, Trust

SOON_SECONDS = 30


def chunked(peer):
    peer.head(200, {"Transfer-Encoding": "chunked"})
    peer.send(b"5\r\nwhole\r\n0\r\n\r\n")


FRAMINGS = {"length": hell.honest(b"whole"), "chunks": chunked}
READS = {"read1": lambda answer: b"".join(iter(lambda: answer.read1(3), b"")), "read": lambda answer: answer.read(),
         "stream": lambda answer: b"".join(answer.stream(3))}  # fmt: skip


@pytest.mark.parametrize("read", list(READS))
@pytest.mark.parametrize("framing", list(FRAMINGS))
@pytest.mark.parametrize("library", list(ASKERS))
def test_a_stop_on_the_last_chunk_leaves_the_connection_to_whoever_has_it(library, framing, read, tls, ca_file, monkeypatch):
    """The stop comes when the connection is in the pool, in use by another call, and its first call has not returned."""
    stop, go_on, put = Stop(), threading.Event(), HTTPConnectionPool._put_conn
    waiting = threading.Event()

    def held(peer):
        waiting.set()
        assert go_on.wait(SOON_SECONDS)
        FRAMINGS[framing](peer)

    with (
        ASKERS[library](Trust(ca_file=ca_file)) as ask,
        hell.Hell(hell.in_turn(FRAMINGS[framing], held), tls=tls) as server,
        ThreadPoolExecutor(1) as another,
    ):

        def call(stop):
            with cuttable(stop, most_bytes=PAGE_BYTES):
                return READS[read](ask.get(server.url))

        def put_and_stop(pool, connection):
            monkeypatch.setattr(HTTPConnectionPool, "_put_conn", put)
            put(pool, connection)
            others.append(another.submit(call, Stop()))
            assert waiting.wait(SOON_SECONDS)
            stop.set()
            go_on.set()

        others = []
        monkeypatch.setattr(HTTPConnectionPool, "_put_conn", put_and_stop)
        assert call(stop) == b"whole"
        assert others[0].result(SOON_SECONDS) == b"whole"
        assert server.connections == 1


@pytest.mark.parametrize("library", list(ASKERS))
def test_a_body_that_was_left_is_not_in_the_pool(library, tls, ca_file):
    """What comes next on its connection is not the next answer."""
    with ASKERS[library](Trust(ca_file=ca_file)) as ask, hell.Hell(hell.honest(b"x" * 100_000), tls=tls) as server:
        for _ in range(2):
            with cuttable(Stop(), most_bytes=PAGE_BYTES):
                answer = ask.get(server.url)
                answer.read1(10)
                answer.close()
        assert server.connections == 2
