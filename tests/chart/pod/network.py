"""A port of this machine that leads into the network of a pod, as `kubectl port-forward` makes one."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import socketserver
import threading
from pathlib import Path
from types import TracebackType

_CLONE_NEWNET = 0x40000000


class Forward:
    """Every connection to `port` is one to that port of an address in the pod's network."""

    def __init__(self, namespace: Path, address: str, target: int) -> None:
        class Handler(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                with contextlib.suppress(OSError), _connected(namespace, address, target) as inner:
                    _carry(self.request, inner)

        self._server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]

    def __enter__(self) -> Forward:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.server_close()


def _connected(namespace: Path, address: str, port: int) -> socket.socket:
    """By a thread that moves into the network for good: a socket stays where it was made. Raises OSError."""
    with namespace.open() as file:
        if ctypes.CDLL(None, use_errno=True).setns(file.fileno(), _CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return socket.create_connection((address, port))


def _carry(outer: socket.socket, inner: socket.socket) -> None:
    back = threading.Thread(target=_pump, args=(inner, outer), daemon=True)
    back.start()
    _pump(outer, inner)
    back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
