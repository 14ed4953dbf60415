"""A call is woken whatever its connection is wrapped in."""

from __future__ import annotations

import socket

from urllib3.util.ssltransport import SSLTransport

from adapter.storage.wire.cutting import CuttableConnection, cuttable
from adapter.workers import Stop


def test_tls_inside_of_the_tls_of_a_proxy_is_cut():
    """urllib3 wraps that in an object that is not a socket."""
    near, far = socket.socketpair()
    wrapped = SSLTransport.__new__(SSLTransport)  # without a handshake
    wrapped.socket = near
    stop = Stop()

    class Answering:
        def getresponse(self):
            stop.set()
            return near.recv(1)

    class Connection(CuttableConnection, Answering):
        sock = wrapped

    with near, far, cuttable(stop, most_bytes=1 << 20):
        assert Connection().getresponse() == b""
