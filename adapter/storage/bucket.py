"""
The one thing that every store of objects must be able to do for us: list pages and read ranges.

Contract, checked by one suite for every store (`tests/contract/bucket`):

- Calls are coroutines of the event loop. Cancelled, they end when no more bytes can be given.
- No call repeats anything: `stores.tries` does. Every failure is a `SourceError` (or
  InvalidRequest when repeating cannot help) with words for people; foreign exceptions stay inside.
- A page holds keys in the store's order, zero-byte objects and folder markers included.
- `read` gives each `Read` exactly the bytes of the listed version, in order, or raises. Bytes that were given before it
  raised are right: the same reads, given again, go on after them.
- A `Read` is told the checksums of the whole object before its bytes come, as far as the store tells them.
- An ETag is compared, never interpreted. Quotes and weak marks are gone. An answer without the version that was listed is refused.
- An object without one has no version: it is read from its start to its end in one answer, and never resumed.

Knows nothing of any one store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adapter.storage.checksums import Checksum

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


class Read:
    """
    Bytes of an object that are wanted, in their order, and how far they have come. Its methods run in a thread of the engine.

    They are kept in memory and believed; a subclass keeps them elsewhere, or compares them with what the store says of the whole object.
    """

    written_bytes = 0
    """That go to a disk, which may have to be waited for."""

    def __init__(self, wanted: StoredObject, start: int, length: int) -> None:
        self.wanted, self.start, self.length = wanted, start, length
        self.moved: Callable[[], None] = lambda: None
        """Called when bytes have come, in any thread."""
        self.content = bytearray()
        self.taken = 0
        """Bytes that have come."""
        self.is_done = False
        """All have come, and are verified."""

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

    def expect(self, told: Sequence[Checksum]) -> bool:
        """
        What an answer tells of the whole object, before its first byte is given. May be told again: answers can be cut.

        Returns whether the value of a checksum that was told without it is worth a request.
        """
        return False

    def give(self, chunk: bytes | memoryview) -> None:
        """The next bytes; a view is the caller's again when this returns. What it raises goes through unchanged."""
        self.keep(chunk)
        self.taken += len(chunk)
        self.moved()

    def keep(self, chunk: bytes | memoryview) -> None:
        """Bytes that have come, behind `taken` others. Raises what `give` may."""
        self.content += chunk

    def end(self) -> None:
        """All have come. What it raises goes through unchanged."""
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
        Give each read its bytes, one read after the other over one connection.

        Reads that are done are left out, and one that has begun goes on. The first that fails ends the call.

        Raises:
            SourceChanged: the object has gone, or is another version than the listed one.
            SourceUnavailable: the store went away, or the body ended early.
            SourceDenied, InvalidRequest: as `list_page`.
        """
