"""
Passes bytes on, both ways, and looks at none: `relay.py PORT TO_PORT`, on loopback, until it is killed.

The least that anything between a client and Triton costs here: what a front does comes on top. Blocking sockets, a thread for each
direction: for one connection nothing in Python is quicker. Needs nothing of ours, so that it starts at once.
"""

from __future__ import annotations

import socket
import sys
import threading

_PIECE = 1 << 20


def relay(port: int, to_port: int) -> None:
    """Never returns."""
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            client, _ = server.accept()
            other = socket.create_connection(("127.0.0.1", to_port))
            for each in (client, other):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for source, target in ((client, other), (other, client)):
                threading.Thread(target=_pass_on, args=(source, target), daemon=True).start()


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    while part := source.recv(_PIECE):
        target.sendall(part)
    target.shutdown(socket.SHUT_WR)


if __name__ == "__main__":
    relay(int(sys.argv[1]), int(sys.argv[2]))
