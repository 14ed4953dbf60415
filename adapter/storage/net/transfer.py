"""One request under way, and those that come after it: head, body, times, and libcurl's handle for them."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any
from urllib.parse import urlsplit

import pycurl

from adapter.storage.net.failures import ANSWER_SECONDS, CONNECT_SECONDS, TooMuch, Unanswered
from adapter.storage.net.messages import ERROR_BYTES, Head, Request, Sink, head_of

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
_OPTIONS = {
    pycurl.NOSIGNAL: 1,
    pycurl.PROTOCOLS: pycurl.PROTO_HTTP | pycurl.PROTO_HTTPS,
    pycurl.HTTP_VERSION: pycurl.CURL_HTTP_VERSION_1_1,
    pycurl.MAXAGE_CONN: _KEPT_SECONDS,
    pycurl.BUFFERSIZE: _RECEIVED_BYTES,
    pycurl.PATH_AS_IS: 1,
    _SUPPRESS_CONNECT_HEADERS: 1,
}
"""Of every request."""
_FEW_PIECES, _LEAST_MEAN_BYTES = 4096, 256
"""Of a body in chunks: around tiny ones there may be framing without end, of which libcurl tells nothing."""
_OF_LIBCURL = ("Accept", "Content-Type", "Expect")
"""Headers that libcurl sends by itself."""


class Transfer:
    """One request under way, and those that come after it. Belongs to the engine's thread once it was started."""

    def __init__(self, request: Request, addresses: Sequence[str]) -> None:
        """`addresses`: the only ones that are connected to; none: those that libcurl finds."""
        self.told: Future[Head] = Future()
        """The head of the last answer, or why there is none. After that nothing reaches a sink."""
        self.curl: Any = None
        self.failure: BaseException | None = None
        """Why it ends."""
        self._addresses = addresses
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._reset(request)

    def _reset(self, request: Request) -> None:
        """Nothing has come of this one."""
        self.request = request
        self._head = Head()
        self._has_head = self._is_good = False
        """The head is whole; and it is of status 200 or 206."""
        self._sink: Sink | None = None
        """Takes the body; None: the head keeps it."""
        self._lines: list[bytes] = []
        self._head_bytes = 0
        self._came_bytes = self._pieces = self._seen_pieces = 0
        """Of the body; when the time was looked at last."""
        self._filled = 0
        """Bytes in the buffer."""
        self._heard = time.monotonic()
        """When the request began, its head was whole, or bytes of its body were seen to have come."""

    def _made(self) -> Any:
        curl, request = pycurl.Curl(), self.request
        for option, value in _OPTIONS.items():
            curl.setopt(option, value)
        curl.setopt(pycurl.CONNECTTIMEOUT, CONNECT_SECONDS)
        curl.setopt(pycurl.HEADERFUNCTION, self._header)
        curl.setopt(pycurl.WRITEFUNCTION, self._body, use_memoryview=True)
        if request.method == "HEAD":
            curl.setopt(pycurl.NOBODY, 1)
        elif request.method != "GET":
            curl.setopt(pycurl.POSTFIELDS, request.body or b"")
            curl.setopt(pycurl.CUSTOMREQUEST, request.method)
        request.access.apply(curl)
        return curl

    def opened(self) -> Any:
        """The handle, set up for the request. Raises ValueError, pycurl.error: no request can have such a URL or header."""
        request = self.request
        curl = self.curl = self.curl or self._made()
        lines = [f"{name}: {value}" if value else f"{name};" for name, value in request.headers.items()]
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError("a header of two lines")
        curl.setopt(pycurl.URL, request.url)
        curl.setopt(pycurl.HTTPHEADER, lines + [f"{name}:" for name in _OF_LIBCURL if name not in request.headers])
        if self._addresses:  # under a name of our own, so that no other connection and no other look-up serves this request
            parts = urlsplit(request.url)
            port = parts.port or (443 if parts.scheme == "https" else 80)
            name = f"{hashlib.sha256(repr(self._addresses).encode()).hexdigest()[:32]}.invalid"
            curl.setopt(pycurl.CONNECT_TO, [f"::{name}:{port}"])
            curl.setopt(pycurl.RESOLVE, [f"+{name}:{port}:{','.join(self._addresses)}"])
        return curl

    def is_followed(self) -> bool:
        """
        The answer has ended: whether another request comes after it, which is this transfer's now.

        Raises:
            the failure: but what came before it reaches the sink.
            whatever a sink raises.
        """
        self._flush()
        if self.failure is not None:
            raise self.failure
        if not self._is_good:
            return False
        if self._sink is not None:
            self._sink.end()
        following = self.request.then(self._head)
        if following is not None:
            self._reset(following)
        return following is not None

    def close(self, error: BaseException | None = None) -> None:
        """Tell that it has ended. The connection is the worker's, and stays."""
        if self.curl is not None:
            self.curl.close()
        if error is not None:
            self.told.set_exception(error)
        else:
            self.told.set_result(self._head)

    def is_late(self, now: float) -> bool:
        """Whether it takes too long, or has failed. Bytes of what is slow reach their sink, so that it does not look silent."""
        try:
            self._flush()
        except BaseException as error:  # noqa: BLE001 - `fetch` raises it
            self.failure = error
        if self._pieces != self._seen_pieces:
            self._seen_pieces, self._heard = self._pieces, now
        silent_seconds = now - self._heard
        if not self._has_head:  # libcurl bounds what comes before the request is sent
            silent_seconds -= float(self.curl.getinfo(pycurl.PRETRANSFER_TIME)) or CONNECT_SECONDS + TICK_SECONDS
        if silent_seconds > ANSWER_SECONDS:
            self.failure = Unanswered(f"no answer within {ANSWER_SECONDS} s", was_connected=True)
        return self.failure is not None

    def _header(self, line: bytes) -> int | None:
        """A line of the head, or a trailer. A callback of libcurl's, which only ends the transfer when it fails."""
        try:
            self._head_bytes += len(line)
            if self._head_bytes > HEAD_BYTES:
                raise TooMuch("headers", HEAD_BYTES)
            if line not in (b"\r\n", b"\n"):
                self._lines.append(line)
            elif not self._has_head:
                self._begin(head_of(self._lines))
        except BaseException as error:  # noqa: BLE001 - `fetch` raises it
            self.failure = error
            return -1
        return None

    def _begin(self, head: Head) -> None:
        self._head, self._lines = head, []
        self._has_head, self._is_good = head.status >= 200, head.status in (200, 206)
        self._heard = time.monotonic() if self._has_head else self._heard
        self._sink = self.request.sink if self._is_good else None
        if self._sink is not None:
            self._sink.begin(head)

    def _body(self, chunk: memoryview) -> int | None:
        """Bytes of the body, 16 KiB at most. As `_header`. There are 65,000 of these in a GiB: a call more in each is 5 % of its CPU."""
        try:
            end = self._filled + len(chunk)
            if end > BUFFER_BYTES or not self._pieces % _FEW_PIECES:
                self._flush()
                end = len(chunk)
            self._buffer[end - len(chunk) : end] = chunk
            self._filled = end
            self._pieces += 1
        except BaseException as error:  # noqa: BLE001 - `fetch` raises it
            self.failure = error
            return -1
        return None

    def _flush(self) -> None:
        """Give the sink what has come. Raises TooMuch, and what the sink raises."""
        filled, self._filled = self._filled, 0
        self._came_bytes += filled
        if self._pieces >= _FEW_PIECES and self._pieces * _LEAST_MEAN_BYTES > self._came_bytes:
            raise TooMuch("framing", _FEW_PIECES * _LEAST_MEAN_BYTES)
        most_bytes = self.request.most_bytes if self._is_good else ERROR_BYTES
        if self._came_bytes > most_bytes:
            raise TooMuch("an answer" if self._is_good else "an error", most_bytes)
        if self._sink is None:
            self._head.body += self._buffer[:filled]
        elif filled:
            self._sink.take(self._buffer[:filled])
