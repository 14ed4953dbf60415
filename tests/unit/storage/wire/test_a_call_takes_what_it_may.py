"""What comes from a peer is counted, whatever part of an answer it is, and whatever library reads it."""

from __future__ import annotations

import pytest
import requests

from adapter.storage.wire.cutting import PAGE_BYTES, cuttable, most_of
from adapter.storage.wire.dialling import FREE
from adapter.storage.wire.metering import ERROR_BYTES, HEAD_BYTES
from adapter.storage.wire.network import can_pass, network_words
from adapter.storage.wire.sessions import prepared
from adapter.workers import Stop
from tests.fakes import hell
from tests.unit.storage.wire.askers import ASKERS, Trust, idle

KERNEL_BYTES = 16 << 20
"""What lies in the buffers of two sockets at most."""
FLOODS = {
    "headers": (hell.endless_headers(), "it sent headers of more than 256 KiB", HEAD_BYTES),
    "100 Continue": (hell.endless_continue(), "it sent headers of more than 256 KiB", HEAD_BYTES),
    "a body": (hell.endless_body(200), "it sent an answer of more than 4 MiB", PAGE_BYTES),
    "a body until the end": (hell.endless_body(206, is_chunked=False), "it sent an answer of more than 4 MiB", PAGE_BYTES),
    "chunk extensions": (hell.endless_chunk_lines(), "it sent an answer of more than 4 MiB", PAGE_BYTES),
    "trailers": (hell.endless_trailers(), "it sent an answer of more than 4 MiB", PAGE_BYTES),
    "an error": (hell.endless_body(500), "it sent an error of more than 64 KiB", ERROR_BYTES),
    "an error of no chunks": (hell.endless_body(403, is_chunked=False), "it sent an error of more than 64 KiB", ERROR_BYTES),
    "a redirect": (hell.endless_body(302, {"Location": "/"}), "it sent an error of more than 64 KiB", ERROR_BYTES),
}


@pytest.fixture(params=list(ASKERS))
def ask(request, ca_file):
    with ASKERS[request.param](Trust(ca_file=ca_file)) as asker:
        yield asker


@pytest.mark.parametrize("flood", list(FLOODS))
def test_a_flood_ends_the_call(ask, tls, flood):
    """With an error that names the bound, and without the connection."""
    behaviour, words, bound = FLOODS[flood]
    with hell.Hell(behaviour, tls=tls) as server:
        with pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=PAGE_BYTES):
            ask.get(server.url).read()
        assert network_words(failed.value) == words
        assert not can_pass(failed.value)
        assert idle(ask) == 0
        assert server.sent_bytes < bound + KERNEL_BYTES


def test_a_line_without_end_is_no_answer(ask):
    """http.client has a bound of its own for lines."""
    with hell.Hell(hell.endless_line()) as server, pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=PAGE_BYTES):
        ask.get(server.url)
    assert network_words(failed.value) == "its answer is not HTTP"


def test_requests_of_one_call_count_together(ask):
    """A chain of redirects, or what a library asks for besides, has no bound for each of its steps."""
    with hell.Hell(hell.honest(b"x" * 1000)) as server, pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=5000):
        for _ in range(6):
            ask.get(server.url).read()
    assert network_words(failed.value) == "it sent an answer of more than 4 KiB"
    assert len(server.requests) == 5


def test_calls_of_one_connection_count_apart(ask, tls):
    """The bound is the call's, and the connection stays."""
    with hell.Hell(hell.honest(b"x" * 1000), tls=tls) as server:
        for _ in range(6):
            with cuttable(Stop(), most_bytes=2000):
                assert len(ask.get(server.url).read()) == 1000
        assert server.connections == 1


def test_a_file_may_be_as_large_as_it_is(ask, tls):
    """And is taken as it is stored, also by a library that asks for encodings."""
    content = b"m" * (9 << 20)
    with (
        hell.Hell(hell.honest(content, {"Content-Encoding": "gzip"}), tls=tls) as server,
        cuttable(Stop(), most_bytes=most_of(len(content))),
    ):
        answer = ask.get(server.url)
        assert answer.read(decode_content=False) == content


def test_a_token_on_the_way_to_a_file_is_no_file():
    """The call of a file of 1 GiB may take a token with it, of its own size."""
    with hell.Hell(hell.endless_body(200)) as server, requests.Session() as session:
        prepared(session, ca_pem=None, verify=True, max_connections=1, guard=FREE)
        with pytest.raises(requests.RequestException) as failed, cuttable(Stop(), most_bytes=most_of(1 << 30)):
            session.post(server.url)
        assert network_words(failed.value) == "it sent an answer of more than 4 MiB"
        assert server.requests[0].headers["accept-encoding"] == "identity"


def test_a_larger_page_has_a_larger_bound(ask):
    """What a page can be is the store's to know."""
    content = b"x" * (6 << 20)
    with hell.Hell(hell.honest(content)) as server, cuttable(Stop(), most_bytes=8 << 20):
        assert ask.get(server.url).read() == content


def test_an_encoded_answer_is_refused_where_none_was_asked_for(ask):
    """What a library makes of it has no bound. Libraries do not even ask."""
    with hell.Hell(hell.bomb(1)) as server:
        with pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=PAGE_BYTES):
            ask.get(server.url, {"Accept-Encoding": "gzip"}).read()
        assert network_words(failed.value) == "its answer has a Content-Encoding that was not asked for"
        assert [peer.headers["accept-encoding"] for peer in server.requests] == ["identity"]
    assert idle(ask) == 0


@pytest.mark.parametrize("encodings", ["identity, gzip", "identity\r\nContent-Encoding: gzip", "x-unknown"])
def test_an_encoding_is_seen_behind_another(ask, encodings):
    """In one header, or in two of them."""
    answer = hell.answering(200, {"Content-Encoding": encodings, "Content-Length": 1}, b"x")
    with hell.Hell(answer) as server, pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=PAGE_BYTES):
        ask.get(server.url)
    assert network_words(failed.value) == "its answer has a Content-Encoding that was not asked for"


def test_an_encoded_error_keeps_its_status_and_loses_its_body(ask):
    """The status is what is acted on."""
    with hell.Hell(hell.bomb(1, 503)) as server, cuttable(Stop(), most_bytes=most_of(10)):
        answer = ask.get(server.url)
        assert (answer.status, answer.read()) == (503, b"")


@pytest.mark.parametrize(("headers", "body"), [({"Content-Length": 10**30}, b"x"), ({"Transfer-Encoding": "chunked"}, b"%x\r\nx" % 10**30)])
def test_lengths_of_the_server_are_not_allocated(ask, headers, body):
    """A length of 10^30 bytes is neither an overflow nor memory. botocore leaves it to others to compare a length."""
    with hell.Hell(_then_gone(hell.answering(200, headers, body))) as server, cuttable(Stop(), most_bytes=PAGE_BYTES):
        answer = ask.get(server.url)
        try:
            assert len(answer.read(1 << 40)) == 1
            assert answer.read(1 << 40) == b""
        except Exception as failed:
            assert network_words(failed) in ("its answer ended early", "the connection was cut")


def _then_gone(behaviour):
    def answer(peer):
        behaviour(peer)
        peer.hang_up()

    return answer


@pytest.mark.parametrize("slow", [hell.trickled_headers(0.1), hell.trickled_continue(0.1)])
def test_headers_come_in_time_or_not_at_all(ca_file, slow):
    """No single read waits for long; together they may not take longer than one."""
    for asker in ASKERS.values():
        with asker(Trust(read_seconds=1)) as ask, hell.Hell(slow) as server:
            with pytest.raises(Exception) as failed, cuttable(Stop(), most_bytes=PAGE_BYTES):
                ask.get(server.url)
            assert network_words(failed.value) == "the headers of its answer did not end within 1 s"
            assert can_pass(failed.value)


def test_a_body_may_take_longer_than_the_headers(ask):
    """Its reads have the whole timeout again: the load's budget bounds them together."""
    slow = hell.Hell(hell.trickled_body(4, pause_seconds=0.4))
    with ASKERS[ask.name](Trust(read_seconds=1)) as quick, slow as server, cuttable(Stop(), most_bytes=PAGE_BYTES):
        assert quick.get(server.url).read() == b"tttt"


def test_early_hints_are_no_answer(ask):
    """http.client takes every interim answer but 100 for a final one."""

    def hinting(peer):
        peer.head(103, {"Link": "</style.css>"})
        peer.head(100)
        hell.honest(b"whole")(peer)

    with hell.Hell(hinting) as server, cuttable(Stop(), most_bytes=PAGE_BYTES):
        answer = ask.get(server.url)
        assert (answer.status, answer.read()) == (200, b"whole")


def test_outside_of_a_call_there_is_a_bound_too(ask):
    with hell.Hell(hell.endless_body(200)) as server, pytest.raises(Exception) as failed:
        ask.get(server.url).read()
    assert network_words(failed.value) == "it sent an answer of more than 4 MiB"


def test_a_call_inside_of_a_call_has_its_own_bound(ask):
    """And the outer one is there again afterwards, for its stop as well."""
    stop = Stop()
    with hell.Hell(hell.honest(b"x" * 5000)) as server, cuttable(stop, most_bytes=8000):
        with cuttable(Stop(), most_bytes=6000):
            ask.get(server.url).read()
        ask.get(server.url).read()
        with pytest.raises(Exception) as failed:
            ask.get(server.url).read()
    assert network_words(failed.value) == "it sent an answer of more than 7 KiB"
