"""What the engine is asked, and what it answers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adapter.storage.net.access import Access

SMALL_BYTES = 256 * 1024
"""Most of a body that is asked for in a row of such ones, over one connection."""
ERROR_BYTES = 64 * 1024
"""Most of an answer that is neither 200 nor 206. The clouds' error documents have less than 8 KiB."""


@dataclass(slots=True)
class Head:
    """Status and headers of an answer."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    """By name in lower case; values of equal names are joined by `, `."""
    error: bytes = b""
    """The body, where the status is neither 200 nor 206."""


def head_of(lines: Sequence[bytes]) -> Head:
    """Of a status line and headers."""
    head = Head(int(lines[0].split(b" ", 2)[1]))
    headers = head.headers
    for line in lines[1:]:
        name, _, value = line.decode("latin-1").partition(":")
        name, value = name.lower(), value.strip()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return head


class Sink(Protocol):
    """Takes the body of an answer of status 200 or 206. Its methods are called in the engine's thread; what they raise `fetch` raises."""

    def begin(self, head: Head) -> None:
        """The head is whole. Called once, before any bytes."""
        ...

    def take(self, chunk: memoryview) -> None:
        """The next bytes, valid during the call."""
        ...

    def end(self) -> None:
        """The body has ended as its framing says. Not called after a failure."""
        ...


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and those that come after it. Nothing is followed or repeated."""

    url: str
    headers: Mapping[str, str]
    sink: Sink
    access: Access
    most_bytes: int
    """Of a body of status 200 or 206."""
    method: str = "GET"
    body: bytes | None = None
    then: Callable[[], Request | None] | None = None
    """What is asked next, of the same server, when this has come whole with status 200 or 206. Called in the engine's thread."""


class Collected:
    """A sink that keeps a whole body in memory; `Request.most_bytes` bounds it."""

    def __init__(self) -> None:
        self.head = Head()
        self._chunks: list[bytes] = []

    def begin(self, head: Head) -> None:
        """As `Sink`."""
        self.head = head

    def take(self, chunk: memoryview) -> None:
        """As `Sink`."""
        self._chunks.append(bytes(chunk))

    def end(self) -> None:
        """As `Sink`."""

    @property
    def content(self) -> bytes:
        """What has come."""
        return b"".join(self._chunks)
