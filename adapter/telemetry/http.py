"""
`/metrics`, `/healthz`, `/readyz` and `/healthz/triton` over HTTP, for Prometheus and the kubelet.

Runs in threads of its own, so that it still answers when the event loop is stuck: that is what
`/healthz` tells. Knows nothing of models; readiness is a callable that must be safe to call from
another thread, and so must the notice that a ready adapter tells, and Triton's health. A client has a few
seconds for its whole request.
"""

from __future__ import annotations

import asyncio
import errno
import io
import socket
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from typing import Protocol

import structlog
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from adapter.errors import ListenError
from adapter.telemetry.connections import BoundedServer
from adapter.telemetry.metrics import READY, REGISTRY
from adapter.telemetry.redaction import redact

BEAT_SECONDS = 1.0
STUCK_AFTER_SECONDS = 10.0
"""An event loop that has not run for this long is called stuck; the kubelet asks every 10 s by default."""
CLIENT_SECONDS = 5.0
"""Time for a client to send its request, and to take the answer."""
_TEXT = "text/plain; charset=utf-8"
_JSON = "application/json"

Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type, body."""

log = structlog.stdlib.get_logger(__name__)


class TritonHealth(Protocol):
    """What `/healthz/triton` tells."""

    @property
    def why(self) -> str | None:
        """Why nothing but a restart of Triton can help, or None."""
        ...

    def as_json(self) -> str:
        """One line."""
        ...


class Heartbeat:
    """The event loop's sign of life: `run` beats in the loop, `age_seconds` may be asked from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._last = clock()

    def beat(self) -> None:
        """Note that the loop runs."""
        self._last = self._clock()

    def age_seconds(self) -> float:
        """Seconds since the last beat."""
        return self._clock() - self._last

    async def run(self) -> None:
        """Beat until cancelled."""
        while True:
            self.beat()
            await asyncio.sleep(BEAT_SECONDS)


class TelemetryServer:
    """
    The HTTP server, in daemon threads.

    Raises:
        ListenError: the port cannot be bound.
    """

    def __init__(
        self,
        *,
        port: int,
        heartbeat: Heartbeat,
        readiness: Callable[[], str | None],
        notice: Callable[[], str | None] = lambda: None,
        triton: Callable[[], TritonHealth] | None = None,
    ) -> None:
        """
        Args:
            port: on all interfaces; 0 for any.
            heartbeat: of the event loop.
            readiness: why ModelMesh could not be served now, or None.
            notice: what a ready adapter tells.
            triton: the health of Triton.
        """
        self._heartbeat = heartbeat
        self._readiness = readiness
        self._notice = notice
        self._triton = triton
        self._server = _bind(port, self._routes())
        READY.set_function(lambda: self._readyz()[0] is HTTPStatus.OK)
        self.port: int = self._server.server_address[1]
        try:
            threading.Thread(target=self._server.serve_forever, name="telemetry-http", daemon=True).start()
        except RuntimeError as error:
            self._server.server_close()
            raise ListenError(f"the thread of METRICS_PORT {port} cannot start: {error}") from error

    def close(self) -> None:
        """Stop listening; requests under way are not waited for."""
        self._server.socket.shutdown(socket.SHUT_RDWR)  # wakes the accepting thread, which polls only twice a second
        self._server.shutdown()
        self._server.server_close()

    def _routes(self) -> dict[str, Callable[[], Answer]]:
        routes = {"/metrics": _metrics, "/healthz": self._healthz, "/readyz": self._readyz}
        if (health := self._triton) is not None:
            routes["/healthz/triton"] = lambda: self._healthz_triton(health())
        return routes

    def _healthz(self) -> Answer:
        age = self._heartbeat.age_seconds()
        if age > STUCK_AFTER_SECONDS:
            return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"the event loop has not run for {age:.0f} s\n".encode()
        return HTTPStatus.OK, _TEXT, b"alive\n"

    def _readyz(self) -> Answer:
        alive = self._healthz()
        if alive[0] is not HTTPStatus.OK:
            return alive
        problem = self._readiness()
        if problem is not None:
            return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"not ready: {redact(problem)}\n".encode(errors="replace")
        notice = self._notice()
        return HTTPStatus.OK, _TEXT, f"ready; {redact(notice)}\n".encode(errors="replace") if notice else b"ready\n"

    def _healthz_triton(self, health: TritonHealth) -> Answer:
        """503 asks for a restart of Triton. An adapter whose loop is stuck has heard nothing and asks for none."""
        age = self._heartbeat.age_seconds()
        if age > STUCK_AFTER_SECONDS:
            text = f"nothing is known of Triton: the adapter's event loop has not run for {age:.0f} s\n"
            return HTTPStatus.INTERNAL_SERVER_ERROR, _TEXT, text.encode()
        status = HTTPStatus.OK if health.why is None else HTTPStatus.SERVICE_UNAVAILABLE
        return status, _JSON, f"{health.as_json()}\n".encode()


def _metrics() -> Answer:
    return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(REGISTRY)


def _bind(port: int, routes: dict[str, Callable[[], Answer]]) -> _Server:
    """On all interfaces: both families by one socket, or IPv4 alone where the machine has no IPv6."""
    for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 - scraped from outside the pod
        try:
            return _Server(family, (address, port), routes)
        except RuntimeError as error:
            raise ListenError(f"the threads of METRICS_PORT {port} cannot start: {error}") from error
        except OSError as error:
            has_no_ipv6 = family == socket.AF_INET6 and error.errno in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
            if not has_no_ipv6:
                reason = (error.strerror or str(error)).lower()
                raise ListenError(f"METRICS_PORT {port} cannot be used: {reason}") from error
    raise ListenError(f"METRICS_PORT {port} cannot be used: the machine has neither IPv4 nor IPv6")


class _Server(BoundedServer):
    def __init__(self, family: socket.AddressFamily, address: tuple[str, int], routes: dict[str, Callable[[], Answer]]) -> None:
        self.routes = routes
        super().__init__(family, address, _Request)

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that went away is nobody's business; anything else is a defect of ours."""
        if not isinstance(sys.exception(), OSError):
            log.error("telemetry.request_failed", exc_info=True)


class _Request(BaseHTTPRequestHandler):
    server: _Server
    server_version = "adapter"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile = io.BufferedReader(_TimedReader(self.connection, CLIENT_SECONDS))

    def do_GET(self) -> None:
        self.server.answers(self.connection)
        route = self.server.routes.get(self.path.partition("?")[0])
        self._answer(*(route() if route else (HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics, /healthz, /readyz and /healthz/triton\n")))

    def do_POST(self) -> None:
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, _TEXT, b"only GET and HEAD\n")

    do_HEAD = do_GET  # noqa: N815 - names that http.server looks for
    do_PUT = do_PATCH = do_DELETE = do_OPTIONS = do_POST  # noqa: N815

    def _answer(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.connection.settimeout(CLIENT_SECONDS)
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """No access log: probes come every few seconds."""


class _TimedReader(io.RawIOBase):
    """Reads a socket under one deadline: a client that sends a byte now and then does not keep its thread."""

    def __init__(self, connection: socket.socket, seconds: float) -> None:
        self._connection = connection
        self._end = time.monotonic() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override] # a writable buffer has no narrower type
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        self._connection.settimeout(left)
        return self._connection.recv_into(buffer)
