"""
The V2 front beside Triton's own: the same Triton, the same model, the same bytes, one client.

Blocks of requests go to one and to the other in turn, each over a connection that is kept. The client is the least of HTTP: bytes that
were made before, one socket, no look at more than where an answer ends. So it costs each server the same, and little.
"""

from __future__ import annotations

import json
import re
import socket
import statistics
import tempfile
import time
from collections.abc import Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmark.amounts import Amounts
from tests.benchmark.report import OURS, Finding
from tests.fronts.rig import FrontsPod
from tests.real import models

TRITONS = "Triton's own"
BLOCKS = 8
"""Pairs of them for each round."""
WARM = 3
SECONDS = 60
_PIECE = 1 << 20
_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)


@dataclass(frozen=True)
class Case:
    """What is asked, again and again."""

    name: str
    floats: int
    block: int
    """Requests in a row on one side."""

    def request(self) -> bytes:
        """An inference of so many FP32, as JSON."""
        data = [round(float(number), 6) for number in np.random.default_rng(7).random(self.floats, np.float32)]
        tensor = {"name": "X", "shape": [self.floats], "datatype": "FP32", "data": data}
        body = json.dumps({"inputs": [tensor]}, separators=(",", ":")).encode()
        lines = ["POST /v2/models/echo/infer HTTP/1.1", "Host: bench", "Content-Type: application/json"]
        return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body


CASES = (Case("JSON, 128 floats", 128, 100), Case("JSON, 3 MB", 330_000, 6))


class Client:
    """One connection that is kept, to loopback."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self._socket.makefile("rb", _PIECE)

    def close(self) -> None:
        """End the connection."""
        self._answers.close()
        self._socket.close()

    def ask(self, request: bytes) -> bytes:
        """The body of the answer. Raises RuntimeError: its status is another than 200, or it has no length."""
        self._socket.sendall(request)
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            if not (line := self._answers.readline()):
                raise RuntimeError("the server closed the connection")
            head += line
        found = _LENGTH.search(head)
        if found is None or not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"the server answered {head[:300]!r}")
        return bytes(self._answers.read(int(found[1])))

    def timed(self, request: bytes) -> float:
        """Milliseconds until the whole answer is there."""
        began = time.perf_counter()
        self.ask(request)
        return (time.perf_counter() - began) * 1000


def fronts(amounts: Amounts) -> Finding:
    """The V2 front beside Triton's own: the same Triton, the same client."""
    finding = Finding("fronts", "HTTP fronts beside Triton's own")
    with ExitStack() as stack:
        pod = stack.enter_context(FrontsPod(Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bench-")))))
        pod.load("echo", models.affine(1, 0))
        ports = {OURS: pod.v2.port, TRITONS: pod.triton.http_port}
        sides = {side: stack.enter_context(closing(Client(port))) for side, port in ports.items()}
        for case in CASES:
            request = case.request()
            if not _are_alike(sides, request):
                finding.wrong.append(f"{case.name}: ours and Triton's own answer differently")
            times: dict[str, list[float]] = {side: [] for side in sides}
            for _ in range(BLOCKS * amounts.rounds):
                for side, client in sides.items():
                    times[side] += [client.timed(request) for _ in range(case.block)]
            for side, found in times.items():
                finding.add(f"{case.name}, p50", side, statistics.median(found), "ms")
    finding.notes.append("Blocks in turn, over one connection that is kept. The model gives back what it is given.")
    return finding


def _are_alike(sides: Mapping[str, Client], request: bytes) -> bool:
    """Whether all give the same numbers; it warms them, too."""
    first, *others = (_numbers_in(client.ask(request)) for client in sides.values() for _ in range(WARM))
    return all(np.array_equal(first, other) for other in others)


def _numbers_in(body: bytes) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    found: dict[str, Any] = json.loads(body)
    return np.array(found["outputs"][0]["data"], np.float32)
