"""
`/metrics`, `/healthz`, `/readyz` and `/healthz/triton` over HTTP, for Prometheus and the kubelet.

Runs in a thread and a loop of its own, so that it still answers when the adapter's loop is stuck: that is what `/healthz` tells.
Knows nothing of models; readiness is a callable that must be safe to call from another thread, and so must the notice that a
ready adapter tells, and Triton's health; none of them waits. A client has a few seconds for its whole request, and as many to
take the answer. While very many are connected, each new one ends the oldest one that has not sent its request: a flood of
clients that say nothing keeps no other client waiting.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

import structlog
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from adapter.errors import ListenError
from adapter.telemetry.metrics import READY, REGISTRY
from adapter.telemetry.redaction import redact

BEAT_SECONDS = 1.0
STUCK_AFTER_SECONDS = 10.0
"""An event loop that has not run for this long is called stuck; the kubelet asks every 10 s by default."""
CLIENT_SECONDS = 5.0
"""Time for a client to send its request, and to take the answer."""
CONNECTIONS = 256
"""At once. The kubelet and Prometheus need one each."""
BACKLOG = 64
"""As many are accepted in one turn of the loop; a client that sends at once is read within three turns, and is not cut before."""

Answer = tuple[HTTPStatus, str, bytes]
"""Status, content type, body."""

log = structlog.stdlib.get_logger(__name__)


class TelemetryServer:
    """
    The HTTP server, in a daemon thread.

    Raises:
        ListenError: the port cannot be bound.
    """

    def __init__(
        self,
        *,
        port: int,
        readiness: Callable[[], str | None],
        notice: Callable[[], str | None] = lambda: None,
        triton: Callable[[], Any] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            port: on all interfaces; 0 for any.
            readiness: why ModelMesh could not be served now, or None.
            notice: what a ready adapter tells.
            triton: its health (`Health` of `adapter.triton.server`): `as_json`, and `why` nothing but a restart can help, or None.
            clock: may be asked from any thread.
        """
        self._readiness, self._notice, self._triton, self._clock = readiness, notice, triton, clock
        self._last_beat = clock()
        self._routes = {"/metrics": _metrics, "/healthz": self._healthz, "/readyz": self._readyz, "/healthz/triton": self._healthz_triton}
        self._socket = _listening(port)
        self.port: int = self._socket.getsockname()[1]
        READY.set_function(lambda: self._readyz()[0] is HTTPStatus.OK)
        self._loop = asyncio.new_event_loop()
        self._closed = asyncio.Event()
        self._clients: dict[asyncio.StreamWriter, bool] = {}
        """All that are connected, the oldest first, and whether they have sent their request."""
        self._thread = threading.Thread(target=self._run, name="telemetry-http", daemon=True)
        try:
            self._thread.start()
        except RuntimeError as error:
            self._socket.close()
            self._loop.close()
            raise ListenError(f"the thread of METRICS_PORT {port} cannot start: {error}") from error

    async def beat(self) -> None:
        """The sign of life of the loop that this runs in, until cancelled."""
        while True:
            self._last_beat = self._clock()
            await asyncio.sleep(BEAT_SECONDS)

    def close(self) -> None:
        """Stop listening; requests under way are not waited for."""
        self._loop.call_soon_threadsafe(self._closed.set)
        self._thread.join(1.0)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._talk, sock=self._socket, backlog=BACKLOG)
        await self._closed.wait()
        server.close()

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One request of a client, and its answer."""
        if len(self._clients) >= CONNECTIONS:
            oldest = min(self._clients, key=self._clients.__getitem__)
            del self._clients[oldest]
            oldest.transport.abort()
        self._clients[writer] = False
        try:
            async with asyncio.timeout(CLIENT_SECONDS):
                line = await reader.readuntil(b"\n")
                while (await reader.readuntil(b"\n")).strip():
                    pass  # nothing is read from a header
            self._clients[writer] = True
            writer.write(self._answered(line.decode("latin-1")))
            writer.close()
            async with asyncio.timeout(CLIENT_SECONDS):
                await writer.wait_closed()
        except (OSError, EOFError, asyncio.LimitOverrunError, asyncio.CancelledError):
            pass  # it went, is too slow (TimeoutError), or sends a line that is too long; or we end
        except Exception:  # whatever one request does, the next one is served
            log.exception("telemetry.request_failed")
        finally:
            writer.transport.abort()
            self._clients.pop(writer, None)

    def _answered(self, line: str) -> bytes:
        """The whole answer to a request line."""
        method, path = (*line.split(), "", "")[:2]
        route = self._routes.get(path.partition("?")[0], _not_found)
        is_asked = method in ("GET", "HEAD")
        status, content_type, body = route() if is_asked else _text(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD")
        kind = f"Allow: GET, HEAD\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}"
        return f"HTTP/1.0 {status:d} {status.phrase}\r\n{kind}\r\n\r\n".encode() + (b"" if method == "HEAD" else body)

    def _stuck(self) -> str | None:
        age = self._clock() - self._last_beat
        return f"the event loop has not run for {age:.0f} s" if age > STUCK_AFTER_SECONDS else None

    def _healthz(self) -> Answer:
        stuck = self._stuck()
        return _text(HTTPStatus.SERVICE_UNAVAILABLE, stuck) if stuck else _text(HTTPStatus.OK, "alive")

    def _readyz(self) -> Answer:
        stuck, problem, notice = self._stuck(), self._readiness(), self._notice()
        if stuck or problem is not None:
            return _text(HTTPStatus.SERVICE_UNAVAILABLE, stuck or f"not ready: {redact(problem or '')}")
        return _text(HTTPStatus.OK, f"ready; {redact(notice)}" if notice else "ready")

    def _healthz_triton(self) -> Answer:
        """503 asks for a restart of Triton. An adapter whose loop is stuck has heard nothing and asks for none."""
        if stuck := self._stuck():
            return _text(HTTPStatus.INTERNAL_SERVER_ERROR, f"nothing is known of Triton: the adapter's {stuck.removeprefix('the ')}")
        health = self._triton()
        status = HTTPStatus.OK if health.why is None else HTTPStatus.SERVICE_UNAVAILABLE
        return status, "application/json", f"{health.as_json()}\n".encode()


def _text(status: HTTPStatus, text: str) -> Answer:
    return status, "text/plain; charset=utf-8", f"{text}\n".encode(errors="replace")


def _not_found() -> Answer:
    return _text(HTTPStatus.NOT_FOUND, "there are /metrics, /healthz, /readyz and /healthz/triton")


def _metrics() -> Answer:
    return HTTPStatus.OK, CONTENT_TYPE_LATEST, generate_latest(REGISTRY)


def _listening(port: int) -> socket.socket:
    """On all interfaces: both families by one socket, or IPv4 alone where the machine has no IPv6."""
    both = socket.has_dualstack_ipv6()
    try:
        return socket.create_server(("", port), family=socket.AF_INET6 if both else socket.AF_INET, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        raise ListenError(f"METRICS_PORT {port} cannot be used: {os.strerror(error.errno or 0).lower()}") from error
