"""Requests of any bytes at the port of probes and metrics: each is answered or cut, none is a defect, and the next one is answered."""

from __future__ import annotations

import errno
import socket
import urllib.request
from collections.abc import Iterator

import pytest
from hypothesis import event
from hypothesis import strategies as st
from structlog.testing import capture_logs

from adapter.telemetry.http import TelemetryServer
from tests.fuzz.fuzzing import fuzzed, mutated

ANSWER_SECONDS = 20
HONEST = [
    b"GET /metrics HTTP/1.1\r\nHost: pod\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n",
    b"GET /readyz?verbose=1 HTTP/1.1\r\nHost: pod\r\nUser-Agent: kube-probe/1.30\r\nAccept: */*\r\nConnection: close\r\n\r\n",
    b"HEAD /healthz HTTP/1.0\r\n\r\n",
    b"POST /healthz HTTP/1.1\r\nHost: pod\r\nContent-Length: 5\r\n\r\nhello",
    b"GET http://[::1]/healthz/triton HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"GET /healthz\r\n\r\n",
]
pieces = st.sampled_from([
    b"GET", b"BREW", b" ", b"/", b"/metrics", b"%00", b"..", b"HTTP/1.1", b"HTTP/9.9", b"HTTP/1.-1", b"HTTP/1", b"\r\n", b"\n", b"\r",
    b"\0", b"Host: ", b"Content-Length: -1", b"Content-Length: 99999999999999999999", b"Expect: 100-continue", b": ", b"\xff\xfe",
    b"x" * 9000, b"X: y\r\n" * 120,
])  # fmt: skip
requests = (
    mutated(st.sampled_from(HONEST), 1)
    | mutated(st.sampled_from(HONEST))
    | st.lists(pieces, max_size=10).map(b"".join)
    | st.binary(max_size=100)
)


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    server = TelemetryServer(port=0, readiness=lambda: "no \ud800\n reason", clock=lambda: 0.0)
    yield server.port
    server.close()


def answer(port: int, request: bytes) -> bytes:
    """All that comes before the connection ends."""
    parts = []
    with socket.create_connection(("127.0.0.1", port), timeout=ANSWER_SECONDS) as connection:
        try:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            while part := connection.recv(65536):
                parts.append(part)
        except TimeoutError:
            raise
        except OSError as error:  # cut in the middle of it
            assert error.errno in (errno.ECONNRESET, errno.EPIPE, errno.ENOTCONN), error
    return b"".join(parts)


@fuzzed(request_=requests)
def test_any_request_to_the_port_of_probes_is_answered_or_cut(port: int, request_: bytes) -> None:
    with capture_logs() as told:
        found = answer(port, request_)
    assert [line for line in told if line["log_level"] == "error"] == []
    status = found.split(b" ")[1][:3] if found.startswith(b"HTTP/1.") else b"none"
    event(status.decode())
    assert not status.startswith(b"500"), found
    assert b"Traceback" not in found


def test_a_probe_is_answered_after_all_of_it(port: int) -> None:
    assert urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=ANSWER_SECONDS).read() == b"alive\n"
