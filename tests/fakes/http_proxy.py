"""
A small proxy as companies have them: it forwards plain http and opens tunnels for TLS, and notes what it was asked for.

Names that exist nowhere can be routed to a server of the test. Own threads, standard library only.
"""

from __future__ import annotations

import base64
import select
import socket
import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from urllib.parse import urlsplit

VARIABLES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "all_proxy", "no_proxy")
"""What a test must take out of the environment before it sets its own."""
_CHUNK_BYTES = 64 * 1024
_DIAL_SECONDS = 5


@dataclass(frozen=True)
class Proxied:
    """What the proxy was asked for."""

    method: str
    """`CONNECT` for a tunnel."""
    target: str
    """`host:port` of a tunnel, else a whole URL."""
    password: str | None
    """`user:password`, where the client gave one."""


class HttpProxy:
    """Context manager. Takes any number of clients."""

    def __init__(self, routes: Mapping[str, str] | None = None, *, password: str | None = None) -> None:
        """
        Args:
            routes: `host:port` that is asked for → `host:port` that is dialled; others are dialled as asked.
            password: `user:password` that clients must give; others get a 407.
        """
        self.requests: list[Proxied] = []
        """In order of arrival."""
        self.routes = dict(routes or {})
        self.password = password
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = _Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, name="http-proxy", daemon=True)

    @property
    def endpoint(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_port}"

    @property
    def url(self) -> str:
        """As it stands in HTTP_PROXY, with the password where there is one."""
        return f"http://{self.password}@{self.endpoint}" if self.password else f"http://{self.endpoint}"

    @property
    def targets(self) -> list[str]:
        """`METHOD target` of each request, in order of arrival, without queries."""
        return [f"{request.method} {request.target.partition('?')[0]}" for request in self.requests]

    def __enter__(self) -> HttpProxy:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def dial(self, endpoint: str) -> socket.socket:
        """The server behind a `host:port`. Raises OSError."""
        host, _, port = self.routes.get(endpoint, endpoint).rpartition(":")
        return socket.create_connection((host.strip("[]"), int(port)), timeout=_DIAL_SECONDS)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A peer that cut the connection is what tests are about; anything else is told."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    owner: HttpProxy
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_CONNECT(self) -> None:
        line = self._admitted(self.path)
        if line is not None:
            self.send_response_only(200)
            self.end_headers()
            self._relay(line)

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        line = self._admitted(f"{url.hostname}:{url.port or 80}")
        if line is None:
            return
        target = url._replace(scheme="", netloc="").geturl() or "/"
        own = ("connection", "proxy-connection", "proxy-authorization")
        kept = [f"{name}: {value}" for name, value in self.headers.items() if name.lower() not in own]
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        line.sendall("\r\n".join([f"{self.command} {target} HTTP/1.1", *kept, "Connection: close", "", ""]).encode("latin-1") + body)
        head = b""
        while b"\r\n" not in head and (some := line.recv(_CHUNK_BYTES)):
            head += some
        first, end, rest = head.partition(b"\r\n")
        self.connection.sendall(first + end + b"Connection: close\r\n" + rest if end else head)
        self._relay(line)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_POST(self) -> None:
        self.do_GET()

    def do_PUT(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Quiet."""

    def _admitted(self, endpoint: str) -> socket.socket | None:
        """A line to the server; None when the client has its answer already."""
        self.close_connection = True
        scheme, _, token = self.headers.get("Proxy-Authorization", "").partition(" ")
        password = base64.b64decode(token).decode() if scheme == "Basic" else None
        self.owner.requests.append(Proxied(self.command, self.path, password))
        if self.owner.password not in (None, password):
            self._refuse(407)
            return None
        try:
            return self.owner.dial(endpoint)
        except OSError:
            self._refuse(502)
            return None

    def _refuse(self, status: int) -> None:
        self.send_response_only(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def _relay(self, line: socket.socket) -> None:
        """Bytes both ways, until one side has ended."""
        with line:
            ends = {self.connection: line, line: self.connection}
            while True:
                for end in select.select(list(ends), [], [])[0]:
                    chunk = end.recv(_CHUNK_BYTES)
                    if not chunk:
                        return
                    ends[end].sendall(chunk)
