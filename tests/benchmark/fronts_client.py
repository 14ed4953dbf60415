"""
The least client of HTTP: bytes that were made before, one socket, no look at more than where an answer ends.

So it costs each server the same, and little: what is timed is the server.
"""

from __future__ import annotations

import json
import re
import socket
import statistics
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import numpy as np

SECONDS = 60
_PIECE = 1 << 20
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_EVENT = b"data: "
_END_OF_CHUNKS = b"\r\n0\r\n\r\n"
HEADER_LENGTH = "Inference-Header-Content-Length"


def posted(path: str, body: bytes, headers: Mapping[str, str] | None = None) -> bytes:
    """A whole request."""
    lines = [f"POST {path} HTTP/1.1", "Host: bench", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


def json_request(path: str, count: int) -> bytes:
    """An inference of so many FP32, as JSON; for `affine`."""
    data = [round(float(number), 6) for number in _numbers(count)]
    tensor = {"name": "X", "shape": [count], "datatype": "FP32", "data": data}
    return posted(path, json.dumps({"inputs": [tensor]}, separators=(",", ":")).encode(), {"Content-Type": "application/json"})


def binary_request(path: str, count: int) -> bytes:
    """The same as binary data, both ways."""
    data = _numbers(count).tobytes()
    tensor = {"name": "X", "shape": [count], "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}
    header = json.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}}, separators=(",", ":")).encode()
    return posted(path, header + data, {HEADER_LENGTH: str(len(header)), "Content-Type": "application/octet-stream"})


def percentile(values: Sequence[float], part: int) -> float:
    """No value that was not measured lies beyond the ends."""
    return values[0] if len(values) == 1 else statistics.quantiles(values, n=100, method="inclusive")[part - 1]


def _numbers(count: int) -> Any:
    return np.random.default_rng(7).random(count, np.float32)


class Client:
    """One connection that is kept, to loopback."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def close(self) -> None:
        """End the connection."""
        self._socket.close()

    def ask(self, request: bytes) -> bytes:
        """The body of the answer. Raises RuntimeError: its status is another than 200, or it has no length."""
        self._socket.sendall(request)
        head, rest = self._head()
        found = _LENGTH.search(head)
        if found is None:
            raise RuntimeError(f"an answer without a length: {head[:300]!r}")
        parts, missing = [rest], int(found[1]) - len(rest)
        while missing > 0:
            part = self._received(min(missing, _PIECE))
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def timed(self, request: bytes) -> float:
        """Milliseconds until the whole answer is there."""
        began = perf_counter()
        self.ask(request)
        return (perf_counter() - began) * 1000

    def events(self, request: bytes) -> list[float]:
        """Milliseconds until each event of a stream has come. Raises RuntimeError: its status is another than 200."""
        began = perf_counter()
        self._socket.sendall(request)
        _, seen = self._head()
        times: list[float] = []
        while True:
            times += [(perf_counter() - began) * 1000] * (seen.count(_EVENT) - len(times))
            if seen.endswith(_END_OF_CHUNKS):
                return times
            seen += self._received(_PIECE)

    def _head(self) -> tuple[bytes, bytes]:
        """Up to the empty line, and what has come after it."""
        seen = b""
        while b"\r\n\r\n" not in seen:
            seen += self._received(_PIECE)
        head, _, rest = seen.partition(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"an answer that is no 200: {seen[:300]!r}")
        return head, rest

    def _received(self, most: int) -> bytes:
        part = self._socket.recv(most)
        if not part:
            raise RuntimeError("the server closed the connection")
        return part
