"""Whatever is read without http.client, http.client reads the same; and whatever is odd is http.client's, from its first byte on."""

from __future__ import annotations

import http.client
from io import BytesIO
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from urllib3 import HTTPHeaderDict
from urllib3.exceptions import HTTPError

from adapter.storage.wire.cutting import cuttable, most_of
from adapter.storage.wire.gets import Get, read_whole
from adapter.storage.wire.plain import FIRST_BYTES, PlainAnswer, head_of, request
from adapter.workers import Stop
from tests.fakes import hell

USUAL = ["HTTP/1.1 200 OK", 'ETag: "e"', "Content-Length: 5"]
ODD = """HTTP/1.1 200 OK|HTTP/1.1 206 Partial Content|HTTP/1.0 200 OK|HTTP/1.1 404 Not Found|HTTP/1.1 200|HTTP/1.1 103 Hints|
Content-Length: 5|content-length:5|Content-Length: 5, 5|Content-Length: +5|Content-Length: 5 |Content-Length: 6|Content-Length : 5|
Transfer-Encoding: chunked|Connection: close|Connection: keep-alive|Connection: Keep-Alive, x|ETag: "e"|ETag:  \t"e" |X: a\tb| folded|
\tfolded|no colon|: nameless|na me: x|X: \xff\xe9|X: a\nY: b|X: a\rY: b|X: \0|X:|Content-Encoding: gzip|x-amz-meta: "|"""
LINES = st.sampled_from(ODD.replace("|\n", "|").split("|"))
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"


def read_by_http_client(text: bytes) -> Any:
    """An answer to a GET, its body unread."""

    class Line:
        def makefile(self, _mode: str) -> BytesIO:
            return BytesIO(text)

    answer = http.client.HTTPResponse(Line(), method="GET")  # type: ignore[arg-type]  # all that is asked of a socket
    answer.begin()
    return answer


@settings(max_examples=3000, deadline=None)
@given(st.lists(LINES, max_size=6), st.booleans(), st.integers(0, 6))
def test_what_is_read_here_http_client_reads_the_same(lines: list[str], is_usual: bool, at: int) -> None:
    head = [*USUAL[:1], *lines[:at], *USUAL[1:], *lines[at:]] if is_usual else lines
    text = "\r\n".join(head).encode("latin-1") + b"\r\n\r\nwhole"

    found = head_of(text)

    if found is None:
        return
    status, headers, end = found
    theirs = read_by_http_client(text)
    assert status == theirs.status
    assert dict(headers) == {name.lower(): value for name, value in HTTPHeaderDict(theirs.getheaders()).itermerged()}
    assert int(headers["content-length"]) == theirs.length
    assert not theirs.chunked and not theirs.will_close
    assert text[end:] == theirs.fp.read()


@pytest.mark.parametrize("status", [b"200 OK", b"206 Partial Content"])
def test_the_usual_answers_of_stores_are_read_here(status: bytes) -> None:
    more = b'\r\nConnection: keep-alive\r\nx-amz-id-2: a/b+c=\r\nServer: AmazonS3\r\nETag: "e"\r\nContent-Length: 5\r\n\r\nwh'

    assert head_of(b"HTTP/1.1 " + status + more) is not None


@pytest.mark.parametrize("name", ["x-goog-hash", "Vary"], ids=["of GCS", "of MinIO"])
def test_a_header_that_comes_twice_is_one_list(name: str) -> None:
    found = head_of(ANSWER[:-2] + f"{name}: crc32c=a==\r\nServer: s\r\n{name.upper()}: md5=b==\r\n\r\n".encode())

    assert found is not None
    assert found[1][name] == "crc32c=a==, md5=b=="


@pytest.mark.parametrize("line", ["Content-Length: 5", "Connection: keep-alive", "Transfer-Encoding: identity"])
def test_framing_that_is_told_twice_is_odd(line: str) -> None:
    assert head_of(ANSWER[:-2] + f"{line}\r\n{line}\r\n\r\n".encode()) is None


def sending(*pieces: bytes) -> hell.Behaviour:
    """These, one after the other, as the answer to each request."""

    def answer(peer: hell.Peer) -> None:
        for piece in pieces:
            peer.send(piece)

    return answer


def with_head_of(size_bytes: int) -> bytes:
    """An answer with many headers."""
    headers = b"".join(b"X-%d: %s\r\n" % (number, b"y" * 1000) for number in range(size_bytes // 1000))
    return ANSWER[:-2] + headers + b"\r\nwhole"


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(ANSWER + b"whole", id="usual"),
        pytest.param(b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n" + ANSWER + b"whole", id="interim"),
        pytest.param(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwhole\r\n0\r\n\r\n", id="chunked"),
        pytest.param(b"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 5\r\n\r\nwhole", id="folded"),
        pytest.param(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nwhole", id="of HTTP/1.0"),
        pytest.param(with_head_of(40_000), id="more than http.client's buffer holds"),
        pytest.param(with_head_of(90_000), id="more than is received at once"),
    ],
)
@pytest.mark.parametrize("size", [7, 100, FIRST_BYTES * 4], ids=["in bits", "in pieces", "at once"])
def test_every_answer_is_whole_however_it_comes(manager: Any, text: bytes, size: int) -> None:
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    with hell.Hell(sending(*pieces)) as server:
        pool = manager.connection_from_url(server.url)
        with cuttable(Stop(), most_bytes=most_of(5)), Get(pool, "/", {}) as body:
            assert read_whole(body) == b"whole"


def test_bytes_behind_the_body_end_the_connection(manager: Any) -> None:
    """They would be the answer to somebody else's request."""
    with hell.Hell(sending(ANSWER + b"whole" + ANSWER + b"other")) as server:
        pool = manager.connection_from_url(server.url)
        for _ in range(2):
            with cuttable(Stop(), most_bytes=most_of(5)), Get(pool, "/", {}) as body:
                assert isinstance(body, PlainAnswer)
                assert read_whole(body) == b"whole"
        assert server.connections == 2


def test_a_connection_whose_chunks_are_nonsense_is_not_used_again(manager: Any) -> None:
    """http.client closes such a body as one that is over; the server may go on, or hang up."""
    with hell.Hell(sending(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n")) as server:
        pool = manager.connection_from_url(server.url)
        for _ in range(2):
            with cuttable(Stop(), most_bytes=most_of(5)), Get(pool, "/", {}) as body, pytest.raises(HTTPError):
                read_whole(body)
        assert server.connections == 2


def test_bytes_behind_a_long_body_are_no_answer_to_another_request(manager: Any, tls: Any) -> None:
    """TLS has them in memory by then, where a look at the socket does not find them."""
    size_bytes = FIRST_BYTES + 10
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size_bytes + b"x" * size_bytes
    with hell.Hell(sending(answer + ANSWER + b"other"), tls=tls) as server:
        pool = manager.connection_from_url(server.url)
        for _ in range(2):
            with cuttable(Stop(), most_bytes=most_of(size_bytes)), Get(pool, "/", {}) as body:
                assert read_whole(body) == b"x" * size_bytes


@pytest.mark.parametrize("target", ["/a b", "/a\r\nX: y", "", "/\u00e9", "/\0"])
def test_a_url_that_no_request_can_have_is_sent_to_nobody(target: str) -> None:
    with pytest.raises(ValueError, match="a URL that no request can have"):
        request("GET", target, "h", ())


@pytest.mark.parametrize("field", [("X", "a\r\nY: b"), ("X", "a\nb"), ("X", "a\0"), ("X y", "a"), ("", "a"), ("X:", "a")])
def test_a_header_that_no_request_can_have_is_sent_to_nobody(field: tuple[str, str]) -> None:
    with pytest.raises(ValueError, match="that no request can have"):
        request("GET", "/", "h", [field])


def test_a_request_names_its_host_once() -> None:
    assert request("GET", "/k", "h:9", [("A", "b")]) == b"GET /k HTTP/1.1\r\nHost: h:9\r\nA: b\r\n\r\n"
    assert request("HEAD", "/k", "h:9", [("hOST", "other")]) == b"HEAD /k HTTP/1.1\r\nhOST: other\r\n\r\n"
