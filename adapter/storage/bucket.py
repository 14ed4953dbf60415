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
- An ETag is compared, never interpreted. Quotes and weak marks are gone.
- An object without one has no version: it is read from its start to its end in one call, and never resumed.

Knows nothing of any one store.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from adapter.workers import Stop

Sink = Callable[[bytes], None]
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
