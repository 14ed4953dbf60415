"""
Counting what comes from a peer, below http.client: status lines, headers, 1xx answers, bodies, chunk framing, trailers.

Whatever a server sends and a library keeps, no call takes more than it was given. Answers have three phases, each with
a bound: the head, which must also come in time; then the body, or the rest of an answer that is an error.
"""

from __future__ import annotations

import http.client
import io
import socket
import time
from collections.abc import Callable
from typing import Any

HEAD_BYTES = 256 * 1024
"""Most that status line and headers may have, the 1xx answers before them included. S3, GCS and Azure send less than 16 KiB."""
ERROR_BYTES = 64 * 1024
"""Most that the rest of an answer may have that is neither 200 nor 206. The clouds' error documents have less than 8 KiB."""
CONTROL_BYTES = 4 * 1024 * 1024
"""Most that the rest of an answer may have that comes in the call of a file and is not the file: tokens."""
HEAD_SECONDS = 10.0
"""For a socket without a timeout of its own; see `MeteredResponse`."""
_GOOD = (200, 206)


class TooMuch(OSError):
    """The peer sent more than the call may take. The connection is cut."""

    def __init__(self, what: str, most_bytes: int) -> None:
        """`what`: `headers`, `an error`, `an answer`."""
        size = f"{most_bytes >> 20} MiB" if most_bytes >= 1 << 20 else f"{most_bytes >> 10} KiB"
        super().__init__(f"it sent {what} of more than {size}")


class SlowHead(TimeoutError):
    """The headers of an answer were begun and not ended in time, though no single read took long."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the headers of its answer did not end within {seconds:g} s")


class UnaskedEncoding(OSError):
    """A body with a `Content-Encoding`, where none was asked for: what comes out of it has no bound."""

    def __init__(self) -> None:
        super().__init__("its answer has a Content-Encoding that was not asked for")


class Bound:
    """What one call may still take from its peers."""

    def __init__(self, most_bytes: int, *, as_stored: bool) -> None:
        """`as_stored`: the body of a good answer to a GET is a file, that nobody decodes."""
        self.most_bytes = self.left = most_bytes
        self.as_stored = as_stored


class _Counted(io.RawIOBase):
    """The raw file of one answer, over the socket's own."""

    def __init__(self, line: Any, raw: io.RawIOBase, bound: Bound, seen: bytes) -> None:
        self.line = line
        self.seen = seen
        """Received before, and not counted yet."""
        self._raw = raw
        self._bound = bound
        self._phase, self._phase_bytes = "headers", min(HEAD_BYTES, bound.most_bytes)
        self._left = self._phase_bytes
        self._timeout: float | None = line.gettimeout()
        self._seconds = HEAD_SECONDS if self._timeout is None else self._timeout
        self._until: float | None = time.monotonic() + self._seconds
        self._is_first = not seen

    @property
    def left(self) -> int:
        return min(self._left, self._bound.left)

    def begin_rest(self, phase: str, most_bytes: int) -> None:
        """The head is whole. What has come of the rest already, into a buffer of 8 KiB, is not counted in its bound."""
        self._phase, self._phase_bytes = phase, most_bytes
        self._left = most_bytes
        self._until = None
        self.line.settimeout(self._timeout)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        if self.seen:
            count: int | None = min(len(buffer), len(self.seen))
            buffer[:count], self.seen = self.seen[:count], self.seen[count:]
        else:
            count = self._raw.readinto(buffer) if self._until is None else self._read_head(buffer, self._until)
        if count:
            self.count(count)
        return count

    def count(self, count: int) -> None:
        """So many bytes have come. Raises TooMuch."""
        self._bound.left -= count
        self._left -= count
        if self._bound.left < 0 or self._left < 0:
            cut(self.line)
            raise self._too_much()

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        if not self.closed:
            super().close()
            self._raw.close()

    def _read_head(self, buffer: Any, until: float) -> int | None:
        if not self._is_first:
            left = until - time.monotonic()
            if left <= 0:
                raise SlowHead(self._seconds)
            self.line.settimeout(left)
        try:
            count = self._raw.readinto(buffer)
        except TimeoutError as error:
            if self._is_first:
                raise
            raise SlowHead(self._seconds) from error
        self._is_first = False
        return count

    def _too_much(self) -> TooMuch:
        return TooMuch("an answer", self._bound.most_bytes) if self._bound.left < 0 else TooMuch(self._phase, self._phase_bytes)


class _Buffer(io.BufferedReader):
    """Allocates no more than may come: lengths are the server's, and the standard library allocates what it is asked for."""

    def __init__(self, raw: _Counted) -> None:
        super().__init__(raw)
        self._counted = raw

    def read(self, size: int | None = -1, /) -> bytes:
        return super().read(size if size is None or size < 0 else self._clipped(size))

    def read1(self, size: int = -1, /) -> bytes:
        return super().read1(size if size < 0 else self._clipped(size))

    def _clipped(self, size: int) -> int:
        """More than the buffer can hold and the call may take: a clipped read ends in TooMuch, or at the end of the stream."""
        return min(size, self._counted.left + io.DEFAULT_BUFFER_SIZE + 1)


class MeteredResponse(http.client.HTTPResponse):
    """
    An answer of http.client that takes what the call may take, and lets go of its socket at its end.

    Its head must be there within the timeout that the socket has when the answer is waited for, in all.
    """

    def __init__(
        self,
        sock: Any,
        debuglevel: int = 0,
        method: str | None = None,
        url: str | None = None,
        *,
        bound: Bound,
        ended: Callable[[], None],
        seen: bytes = b"",
    ) -> None:
        """
        Args:
            sock: what the answer comes from, and the others as http.client's.
            debuglevel: likewise.
            method: likewise.
            url: likewise.
            bound: what the call may still take.
            ended: called once nothing more is read, before whoever reads may put the connection back into its pool.
            seen: the first bytes of the answer, received by somebody else.
        """
        super().__init__(sock, debuglevel, method, url)
        self._method_asked = method
        self._bound = bound
        self._ended = ended
        self._is_broken = False
        """A read has failed: what comes next is nobody's, and http.client closes a body of nonsensical chunks as one that is over."""
        self._counted = _Counted(sock, self.fp.detach(), bound, seen)
        self.fp = _Buffer(self._counted)

    def begin(self) -> None:
        """As http.client's. Raises UnaskedEncoding."""
        if self.headers is not None:
            return
        super().begin()
        if self.status not in _GOOD:
            self._counted.begin_rest("an error", ERROR_BYTES)
        elif self._bound.as_stored and not self._is_file:  # a token, on the way to a file
            self._counted.begin_rest("an answer", CONTROL_BYTES)
        else:
            self._counted.begin_rest("an answer", self._bound.most_bytes)
        self._refuse_encoding()
        self._refuse_lengths()

    def read1(self, n: int = -1) -> bytes:
        """As http.client's, which does not notice by itself that these were the last bytes."""
        try:
            chunk = super().read1(n)
        except BaseException:
            self._is_broken = True
            raise
        if self.length == 0 and self.fp is not None:
            self._close_conn()
        return chunk

    def is_plain(self, length: int) -> bool:
        """Whether exactly so many bytes are left of the body, and come as they are, without any framing."""
        return not self.chunked and self.length == length and self.fp is not None and not self._counted.seen

    def first(self, most_bytes: int) -> bytes:
        """The first bytes of a plain body; afterwards the rest may be read from `line`."""
        return self.read1(min(io.DEFAULT_BUFFER_SIZE, most_bytes))

    @property
    def is_read(self) -> bool:
        """Whether the body was read to its end. http.client closes one that has ended early, too, and may not see the last byte."""
        return not self._is_broken and not self.length and (self.length == 0 or self.isclosed())

    @property
    def line(self) -> Any:
        """The socket, or what TLS in TLS is read through. To be read past the buffer, which is empty after a `read1` of its size."""
        return self._counted.line

    def took(self, count: int) -> None:
        """Count bytes of a plain body that were read from `line`. At the end of the body the connection is free, as after any read."""
        self.length = (self.length or 0) - count
        self._counted.count(count)
        if not self.length and self.fp is not None:
            self._close_conn()

    @property
    def _is_file(self) -> bool:
        return self._bound.as_stored and self._method_asked == "GET"

    def _refuse_encoding(self) -> None:
        """Libraries decode without a bound. An encoded error keeps its status, and loses its body."""
        named = ",".join(self.headers.get_all("Content-Encoding", ())).split(",")
        if all(encoding.strip().lower() in ("", "identity") for encoding in named):
            return
        if self.status in _GOOD:
            if self._is_file or self._method_asked == "HEAD":  # which has nothing to decode
                return
            raise UnaskedEncoding
        for name in ("Content-Encoding", "Content-Length", "Transfer-Encoding"):
            del self.headers[name]
        self.chunked, self.length, self.will_close = False, 0, True

    def _refuse_lengths(self) -> None:
        """Here, and not in urllib3, which leaves the socket to the garbage collector then. RFC 9112, 6.3: such an answer is invalid."""
        named = ",".join(self.headers.get_all("Content-Length", ())).split(",")
        if len({length.strip() for length in named}) > 1:
            raise http.client.HTTPException("two lengths")

    def _read_status(self) -> tuple[str, int, str]:
        """http.client passes over 100 alone, and takes the other interim answers (103 Early Hints) for final ones."""
        while True:
            version, status, reason = super()._read_status()  # type: ignore[misc]  # not in the stubs
            if not 101 < status < 200:
                return version, status, reason
            http.client._read_headers(self.fp)  # type: ignore[attr-defined]  # likewise

    def _close_conn(self) -> None:
        self._ended()
        super()._close_conn()  # type: ignore[misc]  # likewise


def cut(line: Any) -> None:
    """Nothing more comes in, whoever may try to use the connection again."""
    try:
        # not SSLSocket.shutdown: that one takes TLS away under the reader, who would read ciphertext
        socket.socket.shutdown(socket_of(line), socket.SHUT_RDWR)
    except OSError:
        return  # the peer was faster


def socket_of(line: Any) -> socket.socket:
    """urllib3 wraps TLS inside of a proxy's TLS in an object that is not a socket."""
    while not isinstance(line, socket.socket):
        line = line.socket
    return line
