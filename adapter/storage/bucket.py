"""
The one thing that every store of objects must be able to do for us: list pages and read ranges.

Contract, checked by one suite for every store (`tests/contract/bucket`):

- Calls are coroutines of the event loop. Cancelled, they end when nothing can reach the sink any more.
- No call repeats anything: `stores.tries` does. Every failure is a `SourceError` (or
  InvalidRequest when repeating cannot help) with words for people; foreign exceptions stay inside.
- A page holds keys in the store's order, zero-byte objects and folder markers included.
- `read` gives each sink exactly the bytes of the listed version, in order, or raises. Bytes that reached a sink before it
  raised are right: the same reads, given again, go on after them.
- A file's sink is told the checksums of the whole object before its bytes come, as far as the store tells them.
- An ETag is compared, never interpreted. Quotes and weak marks are gone. An answer without the version that was listed is refused.
- An object without one has no version: it is read from its start to its end in one answer, and never resumed.

Knows nothing of any one store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adapter.storage.checksums import Checksum


class FileSink:
    """
    A sink that is a place in a file. Its methods run in a thread of the engine.

    It is told what the store says of the whole object, and compares that with the bytes that came.
    """

    writes = True
    """Whether it may have to wait for a disk."""

    @property
    def is_asking(self) -> bool:
        """Whether the value of a checksum that was told without it is worth a request."""
        return False

    def expect(self, told: Sequence[Checksum]) -> None:
        """What an answer tells of the whole object, before its first byte is given. May be told again: answers can be cut."""

    def __call__(self, chunk: bytes | memoryview) -> None:
        """Take the next bytes. A view is the caller's again when this returns."""
        raise NotImplementedError

    def end(self) -> None:
        """All that was asked for has come."""


Sink = Callable[[bytes | memoryview], object] | FileSink
"""Takes the next bytes of a read. What it raises goes through unchanged."""

PAGE_OBJECTS = 1000
"""The most that S3 gives in one page."""


@dataclass(frozen=True)
class StoredObject:
    """One version of one object, as listed."""

    key: str
    size_bytes: int
    etag: str
    """Opaque version of the content; empty when the store has none."""
    is_divisible: bool = True
    """False: the store gives it from its start only, so reading it in parts would cost more."""
    checksum: str = field(default="", compare=False)
    """Algorithm of one of the whole object that can be asked for, as far as the listing tells. No part of the version."""

    @property
    def is_versioned(self) -> bool:
        """False: two answers cannot be told to be of one version, so it is read in one."""
        return bool(self.etag)


@dataclass(frozen=True)
class Page:
    """A part of a listing."""

    objects: tuple[StoredObject, ...]
    folders: tuple[str, ...] = ()
    """Common prefixes up to the next `/`, when asked for."""
    next_token: str | None = None
    """Where the next page starts; None after the last one."""


@dataclass(eq=False, slots=True)
class Read:
    """Bytes of an object that are wanted, and how far they have come."""

    wanted: StoredObject
    start: int
    length: int
    sink: Sink
    moved: Callable[[], None] = lambda: None
    """Called when bytes have reached the sink, in any thread."""
    taken: int = 0
    """Bytes that have reached the sink."""
    is_done: bool = False
    """The sink has taken all, and verified it."""

    @property
    def next(self) -> int:
        """Position of the first byte that is missing."""
        return self.start + self.taken

    @property
    def last(self) -> int:
        """Position of the last byte."""
        return self.start + self.length - 1

    @property
    def missing(self) -> int:
        """Bytes that have not come."""
        return self.length - self.taken

    @property
    def range(self) -> str:
        """What is missing, as the value of `Range`."""
        return f"bytes={self.next}-{self.last}"

    @property
    def written_bytes(self) -> int:
        """That go to a disk."""
        return self.length if isinstance(self.sink, FileSink) and self.sink.writes else 0

    def give(self, chunk: bytes | memoryview) -> None:
        """The next bytes for the sink. Raises what it raises."""
        self.sink(chunk)
        self.taken += len(chunk)
        self.moved()

    def end(self) -> None:
        """All have come. Raises what the sink raises."""
        if isinstance(self.sink, FileSink):
            self.sink.end()
        self.is_done = True


class Bucket(Protocol):
    """One bucket, container or web server."""

    kind: str
    """Type of the store, as storage configs name it: `s3`."""
    place: str
    """For people, without the server: `s3://bucket`. Never holds credentials."""
    endpoint: str
    """Host and port, or a region of Amazon S3: buckets of one endpoint share its fate."""
    words: str
    """For people, with the server: `bucket 'b' at host:port`. Never holds credentials."""

    async def list_page(self, prefix: str, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """
        Objects whose key starts with `prefix`, from `token` on, at most `limit`.

        Raises SourceNotFound (there is no such bucket), SourceDenied, SourceUnavailable, InvalidRequest.
        """

    async def read(self, reads: Sequence[Read]) -> None:
        """
        Give the bytes of each read to its sink, one read after the other over one connection.

        Reads that are done are left out, and one that has begun goes on. The first that fails ends the call.

        Raises:
            SourceChanged: the object has gone, or is another version than the listed one.
            SourceUnavailable: the store went away, or the body ended early.
            SourceDenied, InvalidRequest: as `list_page`.
        """
