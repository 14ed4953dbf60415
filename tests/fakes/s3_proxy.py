"""
A proxy in front of a real S3 server that spoils chosen answers.

Requests go on unchanged, so signatures stay right. Faults are queued with `next`; each is used by
the next GET that it fits.
"""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlsplit

from tests.fakes.raw_server import Hell, Peer

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
        self._server = Hell(self._answer)
        self.hanging = self._server.hanging
        """Set once an answer hangs."""
        self._upstream = urlsplit(upstream_url).netloc
        self._faults: list[tuple[str, Fault]] = []
        self._lock = threading.Lock()

    @property
    def object_bytes(self) -> int:
        """Of all bodies of objects that were relayed."""
        return sum(size_bytes for target, size_bytes in self.answers if "list-type=" not in target)

    @property
    def endpoint_url(self) -> str:
        """Where to send requests."""
        return self._server.url

    def next(self, fault: Fault, *, times: int = 1, having: str = "") -> None:
        """Spoil the next answers to requests whose target contains `having`."""
        with self._lock:
            self._faults += [(having, fault)] * times

    def heal(self) -> None:
        """Spoil nothing more."""
        with self._lock:
            self._faults.clear()

    def __enter__(self) -> S3Proxy:
        self._server.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.__exit__(kind, error, trace)

    def _fault(self, target: str) -> Fault:
        with self._lock:
            found = next((row for row in self._faults if row[0] in target), None)
            if found is None:
                return Fault()
            self._faults.remove(found)
            return found[1]

    def _answer(self, peer: Peer) -> None:
        self.requests.append(f"{peer.method} {peer.target}")
        fault = self._fault(peer.target)
        if fault.first is not None:
            fault.first()
        if fault.reset_after_bytes == -1:
            return peer.reset()
        if fault.hang_after_bytes == -1:
            peer.hang()
        try:
            status, headers, body = self._relayed(peer, fault)
        except http.client.IncompleteRead:  # an object that was replaced meanwhile
            return peer.hang_up()
        framing = {"Transfer-Encoding": "chunked"} if fault.is_chunked else {"Content-Length": str(len(body))}
        peer.head(status, {**headers, **dict(fault.headers), **framing})
        if peer.method == "HEAD":
            return None
        if fault.status is None:
            self.answers.append((peer.target, len(body)))
        ends = [end for end in (fault.cut_after_bytes, fault.reset_after_bytes, fault.hang_after_bytes) if end is not None]
        sent = body[: min(ends, default=len(body))]
        peer.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(sent), sent) if fault.is_chunked else sent)
        if fault.hang_after_bytes is not None:
            peer.hang()
        return peer.reset() if fault.reset_after_bytes is not None else peer.hang_up() if ends else None

    def _relayed(self, peer: Peer, fault: Fault) -> tuple[int, dict[str, str], bytes]:
        if fault.status is not None:
            text = f"<?xml version='1.0'?><Error><Code>{fault.code}</Code><Message>secret words of the server</Message></Error>"
            return fault.status, {"Content-Type": "application/xml"}, text.encode() if fault.body is None else fault.body
        upstream = http.client.HTTPConnection(self._upstream, timeout=30)
        try:
            upstream.putrequest(peer.method, peer.target, skip_host=True, skip_accept_encoding=True)
            for name, value in peer.headers.items():
                upstream.putheader(name, value)
            upstream.endheaders()
            answer = upstream.getresponse()
            body = answer.read()
        finally:
            upstream.close()
        headers = {name.title(): value for name, value in answer.getheaders() if name.lower() not in HOP_BY_HOP}
        return answer.status, headers, body if fault.body is None else fault.body
