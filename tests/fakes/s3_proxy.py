"""
A proxy in front of a real S3 server that spoils chosen answers.

Requests go on unchanged, so signatures stay right. Faults are queued with `next`; each is used by
the next GET that it fits. Own threads, standard library only.
"""

from __future__ import annotations

import http.client
import socket
import struct
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

HOP_BY_HOP = frozenset({"connection", "keep-alive", "transfer-encoding", "content-length", "date", "server"})


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong with one answer. Nothing set: the answer is relayed as it is."""

    status: int | None = None
    """Answer this instead, with `code` in an S3 error body."""
    code: str = "InternalError"
    headers: tuple[tuple[str, str], ...] = ()
    """Set these on top of the answer's own."""
    body: bytes | None = None
    """Instead of the answer's own."""
    cut_after_bytes: int | None = None
    """End the body here, in a friendly way."""
    is_chunked: bool = False
    """Tell no length, and send the body as one chunk and an end."""
    reset_after_bytes: int | None = None
    """Reset the connection here; -1: before the headers."""
    hang_after_bytes: int | None = None
    """Say nothing more from here on; -1: not even headers."""
    first: Callable[[], object] | None = None
    """Done before the request goes on to the server."""


class S3Proxy:
    """Context manager. `endpoint_url` takes the place of the server's."""

    def __init__(self, upstream_url: str) -> None:
        self.requests: list[str] = []
        """`METHOD target`, in order of arrival."""
        self.answers: list[tuple[str, int]] = []
        """Target and bytes of each body that was relayed, spoiled ones not counted."""
        self.hanging = threading.Event()
        """Set once an answer hangs."""
        self._upstream = urlsplit(upstream_url).netloc
        self._faults: list[tuple[str, Fault]] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, name="s3-proxy", daemon=True)

    @property
    def object_bytes(self) -> int:
        """Of all bodies of objects that were relayed."""
        return sum(size_bytes for target, size_bytes in self.answers if "list-type=" not in target)

    @property
    def endpoint_url(self) -> str:
        """Where to send requests."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def next(self, fault: Fault, *, times: int = 1, having: str = "") -> None:
        """Spoil the next answers to requests whose target contains `having`."""
        with self._lock:
            self._faults += [(having, fault)] * times

    def heal(self) -> None:
        """Spoil nothing more."""
        with self._lock:
            self._faults.clear()

    def __enter__(self) -> S3Proxy:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, target: str) -> Fault:
        """The fault for this request."""
        with self._lock:
            for index, (having, fault) in enumerate(self._faults):
                if having in target:
                    del self._faults[index]
                    return fault
        return Fault()

    def hang(self) -> None:
        """Until the proxy is closed."""
        self.hanging.set()
        self._closing.wait()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A client that cut the connection, or an object that was replaced meanwhile, is what tests are about; anything else is told."""
        if not isinstance(sys.exc_info()[1], (ConnectionError, http.client.IncompleteRead)):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    owner: S3Proxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # headers and body are two sends: the second would wait for an acknowledgement

    def do_GET(self) -> None:
        self.owner.requests.append(f"{self.command} {self.path}")
        fault = self.owner.take(self.path)
        if fault.first is not None:
            fault.first()
        if fault.reset_after_bytes == -1:
            return self._reset()
        if fault.hang_after_bytes == -1:
            return self._hang()
        status, headers, body = self._answer(fault)
        self.send_response_only(status)
        for name, value in {**dict(headers), **dict(fault.headers)}.items():
            self.send_header(name, value)
        framing = ("Transfer-Encoding", "chunked") if fault.is_chunked else ("Content-Length", str(len(body)))
        self.send_header(*framing)
        self.end_headers()
        if self.command != "HEAD":
            if fault.status is None:
                self.owner.answers.append((self.path, len(body)))
            self._write(body, fault)

    def do_HEAD(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _answer(self, fault: Fault) -> tuple[int, list[tuple[str, str]], bytes]:
        if fault.status is not None:
            text = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>secret words of the server</Message></Error>"
            return fault.status, [("Content-Type", "application/xml")], text.encode() if fault.body is None else fault.body
        upstream = http.client.HTTPConnection(self.owner._upstream, timeout=30)
        try:
            upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
            for name, value in self.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders()
            answer = upstream.getresponse()
            body = answer.read()
        finally:
            upstream.close()
        headers = [(name.title(), value) for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP]
        return answer.status, headers, body if fault.body is None else fault.body

    def _write(self, body: bytes, fault: Fault) -> None:
        if fault.reset_after_bytes is not None:
            self.wfile.write(body[: fault.reset_after_bytes])
            return self._reset()
        if fault.hang_after_bytes is not None:
            self.wfile.write(body[: fault.hang_after_bytes])
            return self._hang()
        sent = body[: fault.cut_after_bytes]
        self.wfile.write(b"%x\r\n%b\r\n0\r\n\r\n" % (len(sent), sent) if fault.is_chunked else sent)
        self.close_connection = fault.cut_after_bytes is not None
        return None

    def _reset(self) -> None:
        """Not a FIN: lingering zero seconds makes the kernel send a RST."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.connection.close()
        self.close_connection = True

    def _hang(self) -> None:
        self.owner.hang()
        self.close_connection = True
