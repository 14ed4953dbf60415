"""
Connections and threads of the HTTP server: so many and no more, and always room for the next client.

All threads exist from the start. While every one of them is busy, a connection that waits for a thread ends the oldest
one that has not sent its request: no more is read from that one, and a request that is there already is still answered.
So a flood of clients that say nothing keeps nobody waiting. Clients that do not take their answer are cut when too many
connections wait.
"""

from __future__ import annotations

import queue
import socket
import socketserver
import threading
import time
from contextlib import suppress
from enum import Enum
from http.server import BaseHTTPRequestHandler, HTTPServer

CONNECTIONS = 16
"""At once, and threads. The kubelet and Prometheus need one each."""

WAITING = 16
"""Accepted connections that no thread has begun with."""
CUT_SECONDS = 0.5
ROOM_SECONDS = 5.0
"""Longest wait for room: a thread that hangs in an answer cannot be cut free."""

_Accepted = tuple[socket.socket, object]


class _Step(Enum):
    WAITING = "for a thread"
    READING = "a thread waits for the request"
    ENDED = "no more is read"
    ANSWERING = "has its request"


class BoundedServer(HTTPServer):
    """
    Accepts in the thread that runs `serve_forever`, and serves in threads of its own.

    Raises:
        RuntimeError: the threads cannot start; none is left.
    """

    allow_reuse_port = False
    request_queue_size = 512

    def __init__(self, family: socket.AddressFamily, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self.address_family = family
        self._changed = threading.Condition(threading.RLock())
        self._open: dict[socket.socket, _Step] = {}
        """Connections that were accepted and are not closed, the oldest first."""
        self._is_closing = False
        self._accepted: queue.SimpleQueue[_Accepted | None] = queue.SimpleQueue()
        super().__init__(address, handler)
        try:
            for number in range(CONNECTIONS):
                threading.Thread(target=self._serve, name=f"telemetry-http-{number}", daemon=True).start()
        except RuntimeError:
            self.server_close()
            raise

    def server_bind(self) -> None:
        """Both families where the machine has both; asks no DNS for our name, as HTTPServer's own would."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "adapter", self.server_address[1]

    def process_request(self, request: socket.socket, client_address: object) -> None:  # type: ignore[override] # TCP has no datagrams
        """Hand the connection to a thread; where none is free, the oldest connection is cut for it."""
        with self._changed:
            self._make_room()
            has_room = len(self._open) < CONNECTIONS + WAITING
            if has_room:
                self._accepted.put((request, client_address))
                self._is_at(request, _Step.WAITING)
        if not has_room:
            self.shutdown_request(request)

    def shutdown(self) -> None:
        """End `serve_forever`."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        super().shutdown()

    def server_close(self) -> None:
        """Stop listening, cut every connection, and let the threads end."""
        super().server_close()
        with self._changed:
            for request in self._open:
                _end(request, socket.SHUT_RDWR)
        for _ in range(CONNECTIONS):
            self._accepted.put(None)

    def answers(self, request: socket.socket) -> None:
        """The request is there: reading is over."""
        self._is_at(request, _Step.ANSWERING)

    def _is_at(self, request: socket.socket, step: _Step) -> None:
        with self._changed:
            self._open[request] = step
            self._end_oldest()

    def _end_oldest(self) -> None:
        """So many of those that a thread reads from as wait for a thread and will get none soon."""
        waiting = len(self._at(_Step.WAITING))
        free = CONNECTIONS - (len(self._open) - waiting)
        wanted = waiting - free - len(self._at(_Step.ENDED))
        for request in self._at(_Step.READING)[: max(0, wanted)]:
            self._open[request] = _Step.ENDED
            _end(request, socket.SHUT_RD)

    def _make_room(self) -> None:
        until = time.monotonic() + ROOM_SECONDS
        while len(self._open) >= CONNECTIONS + WAITING and not self._is_closing and time.monotonic() < until:
            if not self._changed.wait(CUT_SECONDS):
                for request in self._at(_Step.ANSWERING):
                    _end(request, socket.SHUT_RDWR)

    def _at(self, step: _Step) -> list[socket.socket]:
        return [request for request, its in self._open.items() if its is step]

    def _serve(self) -> None:
        while (accepted := self._accepted.get()) is not None:
            request, client_address = accepted
            self._is_at(request, _Step.READING)
            try:
                self.finish_request(request, client_address)
            except Exception:  # noqa: BLE001 - whatever one request does, the thread is needed for the next
                self.handle_error(request, client_address)
            finally:
                self.shutdown_request(request)
                with self._changed:
                    del self._open[request]
                    self._changed.notify_all()


def _end(request: socket.socket, how: int) -> None:
    """Wake the thread that reads from it or writes to it; that thread closes it."""
    with suppress(OSError):
        request.shutdown(how)
