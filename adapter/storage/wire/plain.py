"""
The usual answer with a file, read without http.client: HTTP/1.1, 200 or 206, one length, no framing, a connection that stays.

http.client and the parser of mail behind it cost more than all the rest of a small file. Whatever is not as usual is not judged
here: it is read by http.client from its first byte on, with all that `metering` says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

from adapter.storage.wire.metering import Bound, MeteredResponse, TooMuch, cut

FIRST_BYTES = 64 * 1024
"""Most of an answer that is received at once, with its head."""
MOST_HEADERS = 100
"""As http.client has it."""
_END = b"\r\n\r\n"
_STATUS = re.compile(r"HTTP/1\.1 (200|206) [\t -~]*")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_ODD = re.compile(r"[\0-\x08\n-\x1f\x7f]")
_LENGTH = re.compile(r"\d{1,19}")
_TARGET = re.compile(r"[!-~]+")
_ILLEGAL_VALUE = re.compile(r"[\0\r\n]")


class Headers(dict[str, str]):
    """By names in lower case; asked for in any."""

    def __getitem__(self, name: str) -> str:
        return super().__getitem__(name.lower())

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.lower())

    def get(self, name: str, default: Any = None) -> Any:
        """As a dict's."""
        return super().get(name.lower(), default)


class PlainAnswer:
    """An answer whose body is so many bytes as they are. Behaves as `MeteredResponse`, as far as `Get` and `moving` ask."""

    will_close = False

    def __init__(self, line: Any, status: int, headers: Headers, seen: memoryview, *, bound: Bound, ended: Callable[[], None]) -> None:
        """`seen`: of the body. `ended` is called once nothing more is read."""
        self.line = line
        self.status = status
        self.headers = headers
        self._length = int(headers["content-length"])
        self._seen = seen[: self._length]
        self._bound = bound
        self._ended: Callable[[], None] | None = ended
        if len(seen) > self._length:  # whose are these?
            self.will_close = True

    @property
    def is_read(self) -> bool:
        """Whether the body was read to its end."""
        return not self._length

    def is_plain(self, length: int) -> bool:
        """Whether exactly so many bytes are left of the body."""
        return self._length == length

    def first(self, _most_bytes: int) -> bytes | memoryview:
        """What has come already, or what comes next; afterwards the rest may be read from `line`."""
        if not self._seen:
            return self.read1(FIRST_BYTES)
        chunk, self._seen = self._seen, memoryview(b"")
        self._took(len(chunk))
        return chunk

    def read1(self, most_bytes: int = FIRST_BYTES) -> bytes:
        """The next bytes, at most so many; nothing at the end."""
        if self._seen:
            chunk = bytes(self._seen[:most_bytes])
            self._seen = self._seen[most_bytes:]
            self._took(len(chunk))
            return chunk
        chunk = self.line.recv(min(most_bytes, FIRST_BYTES, self._length)) if self._length else b""
        self.took(len(chunk))
        return chunk

    def took(self, count: int) -> None:
        """Count bytes of the body that were read from `line`. Raises TooMuch."""
        count_in(self.line, self._bound, count)
        self._took(count)

    def close(self) -> None:
        """Whoever waits on the connection is somebody else now."""
        if self._ended is not None:
            ended, self._ended = self._ended, None
            ended()

    def _took(self, count: int) -> None:
        self._length -= count
        if not self._length:
            self.close()


PlainBody = PlainAnswer | MeteredResponse
"""What may be read from its socket, when it is as plain as it says."""


def count_in(line: Any, bound: Bound, count: int) -> None:
    """So many bytes have come. Raises TooMuch; the connection is cut then."""
    bound.left -= count
    if bound.left < 0:
        cut(line)
        raise TooMuch("an answer", bound.most_bytes)


def head_of(seen: bytes) -> tuple[int, Headers, int] | None:
    """Status, headers, and where the body begins; None for all that is not as usual, or not all there."""
    end = seen.find(_END)
    lines = seen[: max(end, 0)].decode("latin-1").split("\r\n")
    status = _STATUS.fullmatch(lines[0])
    if status is None or len(lines) > MOST_HEADERS or _ODD.search("".join(lines)):
        return None
    found = Headers()
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        name = name.lower()
        if not colon or not _NAME.fullmatch(name):
            return None
        value = value.lstrip(" \t")
        found[name] = f"{found[name]}, {value}" if name in found else value  # GCS names two hashes so, and MinIO what varies
    if "transfer-encoding" in found or not _LENGTH.fullmatch(found.get("content-length", "")):
        return None
    if found.get("connection", "keep-alive").lower() != "keep-alive":
        return None
    return int(status[1]), found, end + len(_END)


def request(method: str, target: str, host: str, headers: Iterable[tuple[str, str]]) -> bytes:
    """
    A request without a body, for one call of the socket.

    Raises ValueError: nothing of it can be part of a request, as http.client says, too.
    """
    if not _TARGET.fullmatch(target):
        raise ValueError("a URL that no request can have")
    lines = [f"{method} {target} HTTP/1.1"]
    fields = list(headers)
    if not any(name.lower() == "host" for name, _ in fields):
        fields.insert(0, ("Host", host))
    for name, value in fields:
        if not _NAME.fullmatch(name) or _ILLEGAL_VALUE.search(value):
            raise ValueError(f"a header {name!r} that no request can have")
        lines.append(f"{name}: {value}")
    return "\r\n".join((*lines, "", "")).encode("latin-1")
