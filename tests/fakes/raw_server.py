"""
A server over raw sockets, with or without TLS, that a behaviour answers for; and an address that never answers.

Standard library only. `hell.py` has the behaviours.
"""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType

Behaviour = Callable[["Peer"], None]
"""Answers one request, on a thread of its connection."""
LOOPBACK = "127.0.0.1"
_SPAN = re.compile(r"bytes=(\d+)-(\d*)")


class GoneError(Exception):
    """The client has gone, or the test is over: the behaviour ends."""


def head_of(status: int, headers: Mapping[str, str | int] | None = None) -> bytes:
    """A status line and headers, with nothing added."""
    lines = "".join(f"{name}: {value}\r\n" for name, value in (headers or {}).items())
    return f"HTTP/1.1 {status} Whatever\r\n{lines}\r\n".encode("latin-1")


class Peer:
    """One request, and the connection to answer it on."""

    def __init__(self, hell: Hell, line: socket.socket, head: bytes, body: bytes) -> None:
        self._hell = hell
        self._line = line
        first, *rest = head.decode("latin-1").split("\r\n")
        self.method, self.target, _ = (f"{first}  ").split(" ", 2)
        """The target is whole for a proxy: `http://host/path`, or `host:port` of a CONNECT."""
        self.headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}
        """Of the request, names in lower case."""
        self.body = body
        self.is_over = False

    @property
    def span(self) -> tuple[int, int | None] | None:
        """First and last byte of the range that was asked for, by `Range` or Azure's `x-ms-range`; None for the whole."""
        found = _SPAN.fullmatch(self.headers.get("range", self.headers.get("x-ms-range", "")))
        return (int(found[1]), int(found[2]) if found[2] else None) if found else None

    def send(self, some: bytes) -> None:
        """Raises GoneError."""
        if self._hell.closing.is_set():
            raise GoneError
        try:
            self._line.sendall(some)
        except (OSError, ValueError):
            raise GoneError from None
        with self._hell.lock:
            self._hell.sent_bytes += len(some)

    def head(self, status: int, headers: Mapping[str, str | int] | None = None) -> None:
        """A status line and headers, with nothing added."""
        self.send(head_of(status, headers))

    def pause(self, seconds: float) -> None:
        """Raises GoneError when the test is over."""
        if self._hell.closing.wait(seconds):
            raise GoneError

    def hang(self) -> None:
        """Say nothing more until the test is over; the connection stays open."""
        self._hell.hanging.set()
        self._hell.closing.wait()
        raise GoneError

    def hang_up(self) -> None:
        """The connection is closed when the behaviour ends."""
        self.is_over = True

    def reset(self) -> None:
        """The connection is reset at once: a RST, and no FIN."""
        self._line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.is_over = True

    @property
    def line(self) -> socket.socket:
        """The connection itself, for behaviours that relay."""
        return self._line


class Hell:
    """A server on a free port of loopback. Attributes may be changed while it runs; each connection has a thread."""

    def __init__(
        self, behaviour: Behaviour, *, tls: ssl.SSLContext | None = None, stalls_in_tls: bool = False, host: str = LOOPBACK, port: int = 0
    ) -> None:
        """`stalls_in_tls`: connections are accepted, and never answered: to a client of TLS, a handshake that stands still."""
        self.behaviour = behaviour
        self.stalls_in_tls = stalls_in_tls
        self.requests: list[Peer] = []
        """In order of arrival."""
        self.connections = 0
        """That were accepted."""
        self.sent_bytes = 0
        """What the kernel took from us, as plain text; a client has read at most this."""
        self.hanging = threading.Event()
        """Set once an answer hangs, or a handshake."""
        self.closing = threading.Event()
        self.lock = threading.Lock()
        self._tls = tls
        self._host = host
        self._lines: set[socket.socket] = set()
        self._listener = socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=64)
        self._listener.settimeout(0.05)
        self._threads = [threading.Thread(target=self._accept, daemon=True, name="hell")]

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    @property
    def url(self) -> str:
        """Scheme, host and port."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls or self.stalls_in_tls else 'http'}://{host}:{self.port}"

    def __enter__(self) -> Hell:
        self._threads[0].start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.closing.set()
        self._threads[0].join()
        self._listener.close()
        with self.lock:
            lines = list(self._lines)
        for line in lines:
            with contextlib.suppress(OSError):
                socket.socket.shutdown(line, socket.SHUT_RDWR)
        for thread in self._threads[1:]:
            thread.join(10)

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                line, _ = self._listener.accept()
            except TimeoutError:
                continue
            except OSError:
                return
            self.connections += 1
            line.settimeout(None)
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(target=self._serve, args=(line,), daemon=True, name="hell-connection")
            self._threads.append(thread)
            thread.start()

    def _serve(self, line: socket.socket) -> None:
        with self.lock:
            self._lines.add(line)
        wrapped = line
        try:
            if self.stalls_in_tls:
                line.recv(1)  # of the ClientHello
                self.hanging.set()
                self.closing.wait()
                return
            if self._tls is not None:
                line.settimeout(10)
                wrapped = self._tls.wrap_socket(line, server_side=True)
                wrapped.settimeout(None)
                with self.lock:
                    self._lines.discard(line)
                    self._lines.add(wrapped)
            for peer in self._requests(wrapped):
                self.behaviour(peer)
                if peer.is_over or peer.headers.get("connection", "").lower() == "close":
                    return
        except (OSError, GoneError, ValueError):
            return  # a client that goes is what tests are about
        finally:
            with self.lock:
                self._lines.discard(wrapped)
                self._lines.discard(line)
            wrapped.close()

    def _requests(self, line: socket.socket) -> Iterator[Peer]:
        buffer = b""
        while not self.closing.is_set():
            while b"\r\n\r\n" not in buffer:
                some = line.recv(65536)
                if not some:
                    return
                buffer += some
            head, _, buffer = buffer.partition(b"\r\n\r\n")
            found = re.search(rb"(?im)^content-length:\s*(\d+)\s*$", head.replace(b"\r\n", b"\n"))
            length = int(found[1]) if found else 0
            while len(buffer) < length:
                some = line.recv(65536)
                if not some:
                    return
                buffer += some
            body, buffer = buffer[:length], buffer[length:]
            peer = Peer(self, line, head, body)
            self.requests.append(peer)
            yield peer


class BlackHole:
    """An address where a connection attempt is neither accepted nor refused: its SYN stays unanswered, as in a dropped network."""

    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self._fill: list[socket.socket] = []

    @property
    def port(self) -> int:
        """A port that never answers."""
        return int(self._listener.getsockname()[1])

    def __enter__(self) -> BlackHole:
        unanswered = 0
        for _ in range(8):  # until the kernel's queue is full; a busy machine may be late once
            line = socket.socket()
            line.settimeout(0.3)
            self._fill.append(line)
            try:
                line.connect(("127.0.0.1", self.port))
            except TimeoutError:
                unanswered += 1
                if unanswered == 2:
                    return self
        raise RuntimeError("this kernel accepts more connections than a queue of 0 may hold")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for line in (*self._fill, self._listener):
            line.close()
