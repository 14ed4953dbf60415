"""
The one thing that every store of objects must be able to do for us: list pages and read ranges.

Contract, checked by one suite for every store (`tests/contract/bucket`):

- Calls block and run in threads. They end soon after `stop` is set, whatever they wait for, by
  raising `Stopped`; nothing is given to the sink after that.
- No call repeats anything: `stores.retried` does. Every failure is a `SourceError` (or
  InvalidRequest when repeating cannot help) with words for people; foreign exceptions stay inside.
- A page holds keys in the store's order, zero-byte objects and folder markers included.
- `read` gives exactly `length` bytes of the listed version, in order, or raises; bytes that reached
  the sink before it raised are right and need not be read again.
- A file's sink is told the checksums of the whole object before its bytes come, as far as the store tells them.
- An ETag is compared, never interpreted. Quotes and weak marks are gone.
- An object without one has no version: it is read from its start to its end in one call, and never resumed.

Knows nothing of any one store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from adapter.storage.checksums import Checksum
from adapter.workers import Stop


class FileSink:
    """
    A sink that is a place in a file: what is on its way there need not pass through memory of ours. The base of those that are.

    It is told what the store says of the whole object, and whoever has the sink compares that with the bytes that came.
    """

    @property
    def sees_bytes(self) -> bool:
        """Whether all bytes have to pass through memory, as checksums want it."""
        return False

    @property
    def is_asking(self) -> bool:
        """Whether the value of a checksum that was told without it is worth a request."""
        return False

    def expect(self, told: Sequence[Checksum]) -> None:
        """What an answer tells of the whole object, before its first byte is given. May be told again: answers can be cut."""

    def __call__(self, chunk: bytes | memoryview) -> None:
        """Take the next bytes. A view is the caller's again when this returns."""
        raise NotImplementedError

    def take(self, pipe: int, most_bytes: int) -> int:
        """
        Take the next bytes out of a pipe that holds at least so many.

        Returns:
            How many were taken: 0 when this file cannot take from a pipe; the bytes are still in the pipe then.
        """
        raise NotImplementedError


Sink = Callable[[bytes], None] | FileSink
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
    is_answer: bool = True
    """False: the store was not asked, so nothing is known of it."""


class Bucket(Protocol):
    """One bucket, container or web server."""

    @property
    def kind(self) -> str:
        """Type of the store, as storage configs name it: `s3`."""
        ...

    @property
    def place(self) -> str:
        """For people, without the server: `s3://bucket`. Never holds credentials."""
        ...

    @property
    def endpoint(self) -> str:
        """Host and port: buckets of one endpoint share its fate."""
        ...

    @property
    def is_encrypted(self) -> bool:
        """Whether its bytes come over TLS, and a processor decrypts them."""
        ...

    @property
    def words(self) -> str:
        """For people, with the server: `bucket 'b' at host:port`. Never holds credentials."""
        ...

    def list_page(self, prefix: str, stop: Stop, *, token: str | None = None, limit: int = PAGE_OBJECTS, by_folder: bool = False) -> Page:
        """
        Objects whose key starts with `prefix`, from `token` on, at most `limit`.

        Raises SourceNotFound (there is no such bucket), SourceDenied, SourceUnavailable, InvalidRequest.
        """
        ...

    def read(self, wanted: StoredObject, start: int, length: int, sink: Sink, stop: Stop) -> None:
        """
        Give `length` bytes from offset `start` of the object to the sink.

        Raises:
            SourceChanged: the object has gone, or is another version than the listed one.
            SourceUnavailable: the store went away, or the body ended early.
            SourceDenied, InvalidRequest: as `list_page`.
        """
        ...
