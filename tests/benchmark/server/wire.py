"""
Connections of the server: a thread for each, several processes that accept from one socket, bytes by sendfile.

Latency is a sleep before the first byte of an answer; the cap of a connection is the kernel's own pacing
(`SO_MAX_PACING_RATE`, which a TCP socket keeps by itself on any device). Over TLS the block is sent from memory.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import ssl
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

from tests.benchmark.server.stock import block
from tests.benchmark.server.tongues import Answer, Tongues, asked
from tests.real.leash import PR_SET_PDEATHSIG

_SO_MAX_PACING_RATE = 47  # asm-generic/socket.h
_TLS_BYTES = 1024 * 1024
_MOST_HEAD_BYTES = 64 * 1024
_BACKLOG = 1024


@dataclass(frozen=True)
class Manners:
    """How the server behaves."""

    latency_seconds: float = 0.0
    """Before the first byte of each answer."""
    connection_bytes: int = 0
    """Bytes a second for each connection; 0: no cap."""
    context: ssl.SSLContext | None = None


class Server:
    """Listens at once; `serve` never returns."""

    def __init__(self, port: int, tongues: Tongues, manners: Manners, processes: int) -> None:
        self._tongues = tongues
        self.checksums = tongues.checksums
        self._manners = manners
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()
        self._processes = processes
        self._block = os.memfd_create("block")
        with os.fdopen(os.dup(self._block), "wb") as file:
            file.write(block())
        self._memory = memoryview(block())
        self._listener = socket.create_server(("127.0.0.1", port), backlog=_BACKLOG)
        self._date = formatdate(usegmt=True)
        self.spoiled: dict[str, int] = {}
        """Key → which byte of the object is another one on its way. Of this process."""

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{'https' if self._manners.context else 'http'}://127.0.0.1:{self._listener.getsockname()[1]}"

    def counts(self) -> Counter[str]:
        """What this process was asked for: `list`, `head`, `get`."""
        return self._counts.copy()

    def serve_in_thread(self) -> None:
        """In threads of this process, until `close`."""
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept nobody any more."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes whoever accepts
        self._listener.close()
        os.close(self._block)

    def serve(self) -> None:
        """In as many processes as were asked for; they end with this one."""
        pids = []
        for _ in range(1, self._processes):
            pid = os.fork()
            if pid == 0:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # whatever ends the first one
                self._accept()
            pids.append(pid)
        signal.signal(signal.SIGTERM, lambda *_: _end(pids))
        self._accept()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # it was closed
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self.converse, args=(connection,), daemon=True).start()

    def converse(self, connection: socket.socket) -> None:
        """One connection to its end."""
        with connection, contextlib.suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._manners.connection_bytes:
                rate = struct.pack("Q", self._manners.connection_bytes)
                connection.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, rate)
            if self._manners.context is not None:
                connection = self._manners.context.wrap_socket(connection, server_side=True)
            with connection:
                self._requests(connection)

    def _requests(self, connection: socket.socket) -> None:
        unread = b""
        while True:
            while (end := unread.find(b"\r\n\r\n")) < 0:
                more = connection.recv(_MOST_HEAD_BYTES)
                if not more or len(unread) > _MOST_HEAD_BYTES:
                    return
                unread += more
            lines = unread[:end].decode("latin-1").split("\r\n")
            unread = unread[end + 4 :]
            method, target, _ = lines[0].split(" ")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
            if method not in ("GET", "HEAD"):  # whoever sends a body is not a reader
                connection.sendall(b"HTTP/1.1 405 Method Not Allowed\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                return
            answer = self._tongues.answer(asked(target, method, headers))
            with self._lock:
                self._counts[answer.kind] += 1
            time.sleep(self._manners.latency_seconds)
            self._send(connection, answer, with_body=method == "GET")
            if headers.get("connection", "").lower() == "close":
                return

    def _send(self, connection: socket.socket, answer: Answer, *, with_body: bool) -> None:
        head = [
            f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}",
            f"Date: {self._date}",
            f"Content-Length: {answer.body_bytes}",
        ]
        if "Content-Type" not in answer.headers:
            head.append("Content-Type: application/octet-stream")
        head += [f"{name}: {value}" for name, value in answer.headers.items()]
        raw = "\r\n".join([*head, "", ""]).encode()
        if not with_body or answer.item is None:
            connection.sendall(raw + (answer.text if with_body else b""))
            return
        wrong = self.spoiled.get(answer.item.key, -1) - answer.start
        if 0 <= wrong < answer.length:
            body = bytearray(answer.item.content(answer.start, answer.length))
            body[wrong] ^= 0x10
            connection.sendall(raw + body)
            return
        spans = answer.item.spans(answer.start, answer.length)
        if isinstance(connection, ssl.SSLSocket):
            connection.sendall(raw)
            for at, count in spans:
                for begin in range(at, at + count, _TLS_BYTES):
                    connection.sendall(self._memory[begin : min(begin + _TLS_BYTES, at + count)])
            return
        connection.sendall(raw, socket.MSG_MORE)
        for at, count in spans:
            _sendfile(connection.fileno(), self._block, at, count)


def _sendfile(out: int, source: int, at: int, count: int) -> None:
    while count:
        sent = os.sendfile(out, source, at, count)
        if not sent:
            raise OSError("the block has ended")
        at, count = at + sent, count - sent


def _end(pids: list[int]) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)
