"""
The least client of HTTP: bytes that were made before, one socket, no look at more than where an answer ends.

So it costs each server the same, and little: what is timed is the server.
"""

from __future__ import annotations

import asyncio
import json
import re
import socket
import statistics
from collections.abc import Mapping, Sequence
from time import perf_counter
from typing import Any

import grpc.aio
import numpy as np

from adapter.stubs import service_pb2, service_pb2_grpc
from adapter.triton.inference.channels import channel_to
from adapter.triton.inference.messages import WANTS_EMPTY_FINAL, is_last

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


def sleep_request(path: str, seconds: float) -> bytes:
    """An inference that takes so long; for `sleeper`."""
    tensor = {"name": "SECONDS", "shape": [1], "datatype": "FP32", "data": [seconds]}
    return posted(path, json.dumps({"inputs": [tensor]}).encode(), {"Content-Type": "application/json"})


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


class GrpcClient:
    """Triton's gRPC port by the client that the fronts use, in an event loop of its own."""

    def __init__(self, target: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.run_until_complete(self._open(target))

    async def _open(self, target: str) -> None:
        self._channel = channel_to(target, None, -1)
        self._stub = service_pb2_grpc.GRPCInferenceServiceStub(self._channel)

    def close(self) -> None:
        """End the connection."""
        self._loop.run_until_complete(self._channel.close())
        self._loop.close()

    def timed(self, count: int) -> float:
        """Milliseconds for so many FP32, from the tensor to the tensor; for `affine`."""
        return self._loop.run_until_complete(self._timed(_numbers(count).tobytes(), count))

    async def _timed(self, data: bytes, count: int) -> float:
        began = perf_counter()
        tensor = service_pb2.ModelInferRequest.InferInputTensor(name="X", datatype="FP32", shape=[count])
        answer = await self._stub.ModelInfer(service_pb2.ModelInferRequest(model_name="echo", inputs=[tensor], raw_input_contents=[data]))
        taken = (perf_counter() - began) * 1000
        if answer.raw_output_contents[0] != data:
            raise RuntimeError("Triton's answer over gRPC is another one")
        return taken

    def first_token(self, count: int, pace_ms: int) -> float:
        """Milliseconds from the call to the first of so many answers, each after so long; for `repeat`. Returns when all have come."""
        return self._loop.run_until_complete(self._first_token(_repeated(count, pace_ms)))

    async def _first_token(self, request: Any) -> float:
        began = perf_counter()
        call = self._stub.ModelStreamInfer()
        await call.write(request)
        answer = await call.read()
        taken = (perf_counter() - began) * 1000
        while not is_last(answer):
            answer = await call.read()
        await call.done_writing()
        if answer.error_message or await call.read() is not grpc.aio.EOF:
            raise RuntimeError(f"Triton's stream over gRPC is another one: {answer.error_message}")
        return taken


def _repeated(count: int, pace_ms: int) -> Any:
    """As `fronts.stream_request`."""
    delays = [0] + [pace_ms] * (count - 1)
    request = service_pb2.ModelInferRequest(model_name="repeat")
    for name, datatype, values in (("IN", "INT32", range(count)), ("DELAY", "UINT32", delays)):
        request.inputs.add(name=name, datatype=datatype, shape=[count])
        request.raw_input_contents.append(np.array(values, "<i4").tobytes())
    request.parameters[WANTS_EMPTY_FINAL].bool_param = True
    return request
