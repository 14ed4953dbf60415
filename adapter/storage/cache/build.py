"""One artifact in the making: what is there already is linked or written, the rest is filled, then all is published."""

from __future__ import annotations

import os
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import structlog

from adapter.model import Listing
from adapter.paths import directories_of
from adapter.storage.bucket import StoredObject
from adapter.storage.cache import record as records
from adapter.storage.cache.artifacts import Artifacts, Entry
from adapter.storage.cache.record import ARCHIVE, FILES, Identity
from adapter.volume.boot import boot_seconds
from adapter.volume.space import Reservation
from adapter.volume.volume import FILE_MODE, make_plain_directory
from adapter.waits import Waits
from adapter.workers import Stop

_log = structlog.stdlib.get_logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What one load wants, and how it gets at the model's bytes, with credentials of its own."""

    identity: Identity
    is_versioned: bool
    """False: two of them cannot be told apart, so it is made for this load alone."""
    waits: Waits
    contents: Mapping[StoredObject, bytes]
    """What is in memory, and need not be read again."""
    read: Callable[[StoredObject, int], Awaitable[bytes]]
    """The first bytes of this object. Raises SourceError."""
    fill: Callable[[Path, Mapping[str, StoredObject], Reservation, Waits], Awaitable[Listing]]
    """
    Bring what is missing (path below the staged directory → object; `archive`: unpacked into `files`), and return what
    the model has. Raises SourceError, DiskFull, InvalidModel.
    """


@dataclass(eq=False)
class Build:
    """Its methods block. Raise DiskFull, AdapterError: the volume does not take it. The caller lets the entry go then."""

    artifacts: Artifacts
    reserved: Reservation
    wanted: Wanted
    entry: Entry
    """With one user."""
    linked_bytes: int = 0
    """Of the files that other artifacts have too."""

    def begin(self, stop: Stop) -> dict[str, StoredObject]:
        """
        Everything that needs no store.

        Returns:
            What is still missing: path in the artifact → object.
        """
        wanted, artifacts = self.wanted, self.artifacts
        missing = dict(wanted.identity.objects)
        with artifacts.volume.writing(sum(map(len, wanted.contents.values()))):
            staged = self.reserved.insist(artifacts.volume.new_staging)
            artifacts.put(self.entry, staged, {})
            for directory in sorted(directories_of((*missing, f"{FILES}/"))):  # parents first
                self.reserved.insist(partial(make_plain_directory, staged / directory))
            if wanted.is_versioned and ARCHIVE not in wanted.identity.objects:
                linked = artifacts.link(staged, self.entry.origin, missing, stop)
                self.linked_bytes = sum(linked.values())
                artifacts.put(self.entry, staged, linked)
            for path in [path for path, stored in missing.items() if stored in wanted.contents]:
                content = wanted.contents[missing.pop(path)]
                self.reserved.grow(len(content), 1)
                self._write(path, content, FILE_MODE)
        return missing

    def finish(self, listing: Listing, stop: Stop) -> None:
        """Publish it; `listing` is what the store has."""
        staged, confirmed, key = self.entry.folder, boot_seconds(), None
        with self.artifacts.volume.writing(0):
            record, inodes = records.recorded(staged, self.wanted.identity, listing)
            content = msgspec.json.encode(record)
            if self.wanted.is_versioned and len(content) > records.MAX_BYTES:
                cause = "it has too many files: each load after an unload pulls all of it again"
                _log.warning("cache.not_kept", model=listing.origin, files=len(record.files), cause=cause)
            elif self.wanted.is_versioned:
                key = record.key
                self.reserved.change(len(content))
                self._write(records.NAME, content, records.MODE)
                records.confirm(staged, confirmed)
                inodes[os.lstat(staged / records.NAME).st_ino] = len(content)
            stop.check()
            name = f"{key}.{secrets.token_hex(8)}" if key else None
            folder = self.reserved.insist(partial(self.artifacts.volume.publish, staged, name))
            self.artifacts.put(self.entry, folder, inodes, key, confirmed)

    def _write(self, path: str, content: bytes, mode: int) -> None:
        self.reserved.insist(partial(_write_whole, self.entry.folder / path, content, mode))
        self.reserved.wrote(len(content))


def _write_whole(path: Path, content: bytes, mode: int) -> None:
    path.unlink(missing_ok=True)  # of an attempt that found the volume full
    with path.open("xb") as opened:
        os.fchmod(opened.fileno(), mode)
        opened.write(content)
