"""One request under way: its head, its body, its times; and libcurl's handle for it."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass

import pycurl

from adapter.storage.net.access import Access
from adapter.storage.net.failures import ANSWER_SECONDS, CONNECT_SECONDS, DeniedAddress, TooMuch, silent, slow_head
from adapter.storage.net.messages import ERROR_BYTES, Head, Request, head_of

HEAD_BYTES = 256 * 1024
"""Most that status line and headers may have. S3, GCS and Azure send less than 16 KiB."""
TICK_SECONDS = 0.5
"""Between two looks at the time of a transfer."""
_KEPT_SECONDS = 30
"""A connection that was idle for longer is not used again: something on the way may have forgotten it."""
_RECEIVED_BYTES = 128 * 1024
"""By one system call. libcurl makes ten of them before the next connection has its turn: with more, small models wait longer."""
BUFFER_BYTES = 512 * 1024
"""libcurl gives 16 KiB at a time, and a call of a sink costs as much as some of these."""
_SUPPRESS_CONNECT_HEADERS = 265
"""Source: curl/curl.h; pycurl has no name for it."""
_FEW_PIECES, _LEAST_MEAN_BYTES = 4096, 256
"""Of a body in chunks: around tiny ones there may be framing without end, of which libcurl tells nothing."""
_OF_LIBCURL = ("Accept", "Content-Type", "Expect")
"""Headers that libcurl sends by itself."""
_GOOD = (200, 206)
_FIRST_FINAL = 200


@dataclass(slots=True)
class Answer:
    """Who waits for a transfer, and how it has ended."""

    loop: asyncio.AbstractEventLoop
    ended: asyncio.Future[tuple[Head, BaseException | None]]
    error: BaseException | None = None


class UnknownNameError(Exception):
    """libcurl found no address."""


class Transfer:
    """One request under way, and those that come after it. Belongs to the engine's thread once it was started."""

    __slots__ = (
        "answer", "began",
        "came_bytes", "curl", "error", "filled", "has_head", "has_moved", "head", "head_bytes", "heard", "is_good", "left_bytes",
        "lines", "pieces",
        "pinned", "request",
    )  # fmt: skip

    def __init__(self, request: Request, answer: Answer, pinned: str) -> None:
        self.answer = answer
        self.pinned = pinned
        self.error: BaseException | None = None
        self.curl: Handle | None = None
        self.begin(request)

    def begin(self, request: Request) -> None:
        """Nothing has come of this one."""
        self.request = request
        self.head = Head()
        self.lines: list[bytes] = []
        self.head_bytes = 0
        self.has_head = self.is_good = self.has_moved = False
        self.left_bytes = request.most_bytes
        self.pieces = self.came_bytes = 0
        self.filled = 0
        """Bytes in the buffer of the handle."""
        self.began = self.heard = time.monotonic()

    def header(self, line: bytes) -> None:
        """A line of the head, or a trailer. Raises TooMuch, and what the sink raises."""
        self.head_bytes += len(line)
        if self.head_bytes > HEAD_BYTES:
            raise TooMuch("headers", HEAD_BYTES)
        if self.has_head:
            return
        if line not in (b"\r\n", b"\n"):
            self.lines.append(line)
            return
        head = self.head = head_of(self.lines)
        self.lines.clear()
        if head.status >= _FIRST_FINAL:
            self.has_head, self.is_good = True, head.status in _GOOD
            self.heard = time.monotonic()
            if self.is_good:
                self.request.sink.begin(head)
            else:
                self.left_bytes = ERROR_BYTES

    def body(self, chunk: memoryview, buffer: memoryview) -> None:
        """Bytes of the body, 16 KiB at most. Raises as `header`."""
        count = len(chunk)
        self.pieces += 1
        self.came_bytes += count
        if self.pieces > _FEW_PIECES and self.pieces * _LEAST_MEAN_BYTES > self.came_bytes:
            raise TooMuch("framing", _FEW_PIECES * _LEAST_MEAN_BYTES)
        self.left_bytes -= count
        if self.left_bytes < 0:
            raise TooMuch("an answer", self.request.most_bytes) if self.is_good else TooMuch("an error", ERROR_BYTES)
        filled = self.filled + count
        if filled > BUFFER_BYTES:
            self.flush(buffer)
            filled = count
        buffer[filled - count : filled] = chunk
        self.filled, self.has_moved = filled, True

    def flush(self, buffer: memoryview) -> None:
        """Give the sink what has come. Raises what the sink raises."""
        filled, self.filled = self.filled, 0
        if self.is_good:
            self.request.sink.take(buffer[:filled])
        else:
            self.head.error += bytes(buffer[:filled])

    def lateness(self, now: float) -> BaseException | None:
        """What is wrong with the time that it takes. libcurl bounds what comes before the request is sent."""
        if self.has_moved:
            self.heard, self.has_moved = now, False
        if self.has_head:
            return silent() if now - self.heard > ANSWER_SECONDS else None
        before = float(self.curl.curl.getinfo(pycurl.PRETRANSFER_TIME)) if self.curl is not None else 0.0
        if now - self.began - (before or CONNECT_SECONDS + TICK_SECONDS) <= ANSWER_SECONDS:
            return None
        return slow_head() if self.head_bytes else silent()


class Handle:
    """A handle of libcurl for one access, used for one transfer after the other."""

    __slots__ = ("buffer", "curl", "transfer")

    def __init__(self, access: Access) -> None:
        self.transfer: Transfer | None = None
        self.buffer = memoryview(b"")
        """Lent for each transfer."""
        curl = self.curl = pycurl.Curl()
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.PROTOCOLS, pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS)
        curl.setopt(pycurl.HTTP_VERSION, pycurl.CURL_HTTP_VERSION_1_1)
        curl.setopt(pycurl.MAXAGE_CONN, _KEPT_SECONDS)
        curl.setopt(pycurl.TCP_KEEPALIVE, 1)
        curl.setopt(pycurl.BUFFERSIZE, _RECEIVED_BYTES)
        curl.setopt(_SUPPRESS_CONNECT_HEADERS, 1)
        curl.setopt(pycurl.PATH_AS_IS, 1)
        curl.setopt(pycurl.HEADERFUNCTION, self._on_header)
        curl.setopt(pycurl.WRITEFUNCTION, self._on_body, use_memoryview=True)
        access.apply(curl, self._on_denied)

    def begin(self, transfer: Transfer) -> None:
        """Take a transfer. Raises ValueError, pycurl.error: no request can have such a URL or header."""
        self.transfer, request, curl = transfer, transfer.request, self.curl
        transfer.curl = self
        lines = [f"{name}: {value}" if value else f"{name};" for name, value in request.headers.items()]
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError("a header of two lines")
        curl.setopt(pycurl.URL, request.url)
        curl.setopt(pycurl.CONNECTTIMEOUT, CONNECT_SECONDS)
        curl.setopt(pycurl.HTTPHEADER, lines + [f"{name}:" for name in _OF_LIBCURL if name not in request.headers])
        if transfer.pinned:
            curl.setopt(pycurl.RESOLVE, [transfer.pinned])
        if request.method == "HEAD":
            curl.setopt(pycurl.NOBODY, 1)
        elif request.method == "GET":
            curl.setopt(pycurl.HTTPGET, 1)
        else:
            curl.setopt(pycurl.POSTFIELDS, request.body or b"")
        if request.method in ("GET", "HEAD", "POST"):
            curl.unsetopt(pycurl.CUSTOMREQUEST)
        else:
            curl.setopt(pycurl.CUSTOMREQUEST, request.method)

    def flush(self) -> None:
        """Give the sink what has come. Raises what the sink raises."""
        if self.transfer is not None and self.transfer.filled:
            self.transfer.flush(self.buffer)

    def _on_header(self, line: bytes) -> int | None:
        transfer = self.transfer
        if transfer is None:
            return -1
        try:
            transfer.header(line)
        except BaseException as error:  # noqa: BLE001 - `fetch` raises it; libcurl shall only end the transfer
            transfer.error = error
            return -1
        return None

    def _on_body(self, chunk: memoryview) -> int | None:
        transfer = self.transfer
        if transfer is None:
            return -1
        try:
            transfer.body(chunk, self.buffer)
        except BaseException as error:  # noqa: BLE001 - likewise
            transfer.error = error
            return -1
        return None

    def _on_denied(self, address: str) -> None:
        if self.transfer is not None:
            self.transfer.error = DeniedAddress(address)
